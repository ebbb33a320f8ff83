#include "resource_manager/core/events.h"

#include <array>

namespace twofold::resource_manager {

namespace {

constexpr std::array<std::string_view, std::variant_size_v<Event>> kEventNames{"SessionRequested",
                                                                               "ConnectionClosed",
                                                                               "Start",
                                                                               "Prepare",
                                                                               "Commit",
                                                                               "Rollback",
                                                                               "Release",
                                                                               "Forget",
                                                                               "Recover",
                                                                               "AskOutcome",
                                                                               "Mark",
                                                                               "Join",
                                                                               "Execute",
                                                                               "End",
                                                                               "Ran",
                                                                               "Persisted",
                                                                               "Refused",
                                                                               "SpaceChanged",
                                                                               "Tick"};

constexpr std::array<std::string_view, std::variant_size_v<Effect>> kEffectNames{
    "AcceptSession",  "RefuseSession",  "CloseConnection", "Run",
    "Discard",        "PersistPrepare", "PersistCommit",   "PersistRollback",
    "PersistNode",    "Answer",         "AnswerRecover",   "AnswerFromEvidence",
    "AnswerEvidence", "AnswerFailure",  "ReportWaits",     "Alarm"};

static_assert(!kEventNames.back().empty() && !kEffectNames.back().empty(), "a name is missing");

}  // namespace

std::string_view name(const Event& event) {
  return kEventNames[event.index()];
}
std::string_view name(const Effect& effect) {
  return kEffectNames[effect.index()];
}

std::vector<std::string_view> event_names() {
  return {kEventNames.begin(), kEventNames.end()};
}
std::vector<std::string_view> effect_names() {
  return {kEffectNames.begin(), kEffectNames.end()};
}

}  // namespace twofold::resource_manager
