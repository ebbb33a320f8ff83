#include "tests/sim/trace.h"

#include <type_traits>

#include "protocol/xa.h"
#include "tests/coordinator/core_text.h"
#include "tests/sim/history.h"

namespace twofold::sim {

namespace rm = resource_manager;
namespace co = coordinator;

namespace {

// What most events and effects have, as far as this one has it.
template <class One>
std::string details(const One& one) {
  std::string text;
  const auto add = [&](const std::string& more) { text += " " + more; };
  if constexpr (requires { one.xid.bqual; }) add(describe(one.xid));
  if constexpr (requires {
                  one.work.size();
                  one.work.c_str();
                }) {
    if (!one.work.empty()) add("[" + one.work + "]");
  }
  if constexpr (requires { one.code; }) add(std::string(name(one.code)));
  if constexpr (requires { one.then; }) {
    const char* then[] = {"", "prepare", "commit_one_phase"};
    add(then[static_cast<int>(one.then)]);
  }
  if constexpr (requires { one.one_phase; }) {
    if (one.one_phase) add("one_phase");
  }
  if constexpr (requires {
                  one.node;
                  one.epoch;
                }) {
    add(one.node + " epoch " + std::to_string(one.epoch) + " session " +
        std::to_string(one.counter));
  }
  if constexpr (requires { one.low_water; }) add(to_text(one.low_water));
  if constexpr (requires { one.connection; }) add("connection " + std::to_string(one.connection));
  if constexpr (requires { one.branches; }) {
    for (const auto& branch : one.branches) {
      if constexpr (requires { branch.busy; }) {
        add(describe(branch.xid) + (branch.busy ? " busy" : ""));
      } else {
        add(branch.rm + " [" + branch.work + "]");
      }
    }
  }
  if constexpr (requires { one.request_id; }) {
    if (!one.request_id.empty()) add("request " + one.request_id);
  }
  if constexpr (requires { one.gtrid; }) {
    if (!one.gtrid.empty()) add(id_of(one.gtrid));
  }
  if constexpr (requires { one.ticket; }) add("#" + std::to_string(one.ticket));
  if constexpr (requires { one.text; }) {
    if (!one.text.empty()) add("\"" + one.text + "\"");
  }
  return text;
}

}  // namespace

std::string describe(const Xid& xid) {
  const auto bqual = Bqual::decode(xid.bqual);
  return id_of(xid.gtrid) + "/" + (bqual ? std::to_string(bqual->index) + "@" + bqual->rm : "?");
}

std::string describe(const rm::Event& event) {
  return std::visit([&](const auto& one) { return std::string(name(event)) + details(one); },
                    event);
}

std::string describe(const rm::Effect& effect) {
  return std::visit([&](const auto& one) { return std::string(name(effect)) + details(one); },
                    effect);
}

std::string describe(const co::Options& options, const co::Event& event) {
  std::string text(name(event));
  if (const auto rm = co::resource_manager(event)) text += " " + options.resource_managers[*rm];
  return std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.branch.index; }) {
          text += " " + to_text(one.branch.id) + "/" + std::to_string(one.branch.index);
        }
        if constexpr (requires { one.complete; }) {
          if (!one.complete) text += " failed";
        }
        return text + details(one);
      },
      event);
}

std::string describe(const co::Options& options, const co::Effect& effect) {
  return co::test::text(options, effect);
}

std::string describe(const Outcome& outcome) {
  std::string text(name(outcome.verdict));
  if (outcome.reason != Reason::none) text += " " + std::string(name(outcome.reason));
  if (!outcome.gtrid.empty()) text += " " + id_of(outcome.gtrid);
  return text + (outcome.detail.empty() ? "" : " \"" + outcome.detail + "\"");
}

}  // namespace twofold::sim
