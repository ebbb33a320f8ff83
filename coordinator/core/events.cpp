#include "coordinator/core/events.h"

#include <array>
#include <concepts>
#include <type_traits>

namespace twofold::coordinator {

namespace {

constexpr std::array kEventNames{std::string_view{"Submit"},
                                 std::string_view{"Begin"},
                                 std::string_view{"Enlist"},
                                 std::string_view{"CommitRequested"},
                                 std::string_view{"RollbackRequested"},
                                 std::string_view{"WorkDone"},
                                 std::string_view{"Voted"},
                                 std::string_view{"Acknowledged"},
                                 std::string_view{"Durable"},
                                 std::string_view{"Refused"},
                                 std::string_view{"InDoubtListed"},
                                 std::string_view{"OutcomeTold"},
                                 std::string_view{"OutcomeAsked"},
                                 std::string_view{"WaitsReported"},
                                 std::string_view{"Drain"},
                                 std::string_view{"LinkUp"},
                                 std::string_view{"LinkDown"},
                                 std::string_view{"SpaceChanged"},
                                 std::string_view{"Tick"},
                                 std::string_view{"Shutdown"}};
static_assert(kEventNames.size() == std::variant_size_v<Event>);

constexpr std::array kEffectNames{
    std::string_view{"Start"},     std::string_view{"Prepare"},     std::string_view{"Persist"},
    std::string_view{"Commit"},    std::string_view{"Rollback"},    std::string_view{"Release"},
    std::string_view{"Forget"},    std::string_view{"ListInDoubt"}, std::string_view{"AskOutcome"},
    std::string_view{"SendMark"},  std::string_view{"Reply"},       std::string_view{"Enlisted"},
    std::string_view{"DrainTold"}, std::string_view{"Alarm"}};
static_assert(kEffectNames.size() == std::variant_size_v<Effect>);

// Of whatever names a resource manager.
template <class Variant>
std::optional<RmId> resource_manager_of(const Variant& message) {
  return std::visit(
      [](const auto& one) -> std::optional<RmId> {
        if constexpr (requires {
                        { one.rm } -> std::same_as<const RmId&>;
                      }) {
          return one.rm;
        } else {
          return std::nullopt;
        }
      },
      message);
}

}  // namespace

std::string_view name(const Event& event) {
  return kEventNames[event.index()];
}
std::string_view name(const Effect& effect) {
  return kEffectNames[effect.index()];
}
std::optional<RmId> resource_manager(const Event& event) {
  return resource_manager_of(event);
}
std::optional<RmId> resource_manager(const Effect& effect) {
  return resource_manager_of(effect);
}

std::vector<std::string_view> event_names() {
  return {kEventNames.begin(), kEventNames.end()};
}
std::vector<std::string_view> effect_names() {
  return {kEffectNames.begin(), kEffectNames.end()};
}

}  // namespace twofold::coordinator
