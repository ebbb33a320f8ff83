#include "runtime/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace twofold {
namespace {

constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 6> kLevels{{
    {"trace", spdlog::level::trace},
    {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},
    {"warn", spdlog::level::warn},
    {"error", spdlog::level::err},
    {"off", spdlog::level::off},
}};

spdlog::level::level_enum level_named(const std::string& level) {
  std::string choices;
  for (const auto& [word, value] : kLevels) {
    if (word == level) return value;
    choices.append(choices.empty() ? "" : ", ").append(word);
  }
  throw std::runtime_error("unknown log level \"" + level + "\": choose one of " + choices);
}

}  // namespace

void set_up_logging(const std::string& program, const std::string& level) {
  const auto chosen = level_named(level);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(program, std::move(sink));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n[%P] %^%l%$ %v");
  logger->set_level(chosen);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace twofold
