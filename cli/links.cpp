#include "cli/links.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/output.h"
#include "client/client.h"

namespace twofold::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLinksMax{5'000};
constexpr milliseconds kAskAgain{20};

std::string text_of(const wire::StatsAnswer& stats, const std::string& name) {
  for (const auto& text : stats.texts()) {
    if (text.name() == name) return text.value();
  }
  return {};
}

// Its session has begun, or will not before a person has done something.
bool is_settled(const wire::StatsAnswer& stats, const std::string& name) {
  const std::string standing = text_of(stats, name + ".participant");
  return standing.ends_with("serving") || standing.ends_with("barred");
}

}  // namespace

std::vector<std::string> participants_of(const lab::Cluster& cluster) {
  auto names = cluster.names();
  names.erase(names.begin());  // the coordinator
  return names;
}

void await_links(const lab::Cluster& cluster, std::vector<std::string> participants) {
  const auto address = cluster.address(lab::kCoordinator);
  if (!address) return;
  const auto give_up = Clock::now() + kLinksMax;
  wire::StatsAnswer told;
  while (cluster.is_running(lab::kCoordinator)) {
    const auto left = std::chrono::duration_cast<milliseconds>(give_up - Clock::now());
    if (left <= milliseconds{0}) break;
    wire::Frame question;
    question.mutable_stats();
    const auto answer = client::call_once(*address, std::move(question), left);
    if (answer) told = answer->stats_answer();
    std::erase_if(participants, [&](const std::string& name) {
      return !cluster.is_running(name) || (answer && is_settled(told, name));
    });
    if (participants.empty()) return;
    std::this_thread::sleep_for(kAskAgain);
  }
  if (!cluster.is_running(lab::kCoordinator)) return;
  for (const std::string& name : participants) {
    const std::string link = text_of(told, name + ".link");
    note("the coordinator has no session with " + name + " yet" +
         (link.empty() ? "" : ": " + link));
  }
}

}  // namespace twofold::cli
