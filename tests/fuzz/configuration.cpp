// The TOML file of a system: what is accepted is written as a file that means the same, wherever
// that lies, and what is not has a reason with its line.
//
// Input: the file.
#include "runtime/configuration.h"

#include "tests/fuzz/fuzz.h"

namespace twofold::fuzz {
namespace {

const std::filesystem::path kFile = "/srv/shop/twofold.toml";
const std::filesystem::path kElsewhere = "/another/place/copy.toml";

void check_path(const std::filesystem::path& path) {
  const std::string& text = path.native();
  require(text.empty() || path.is_absolute(), "an accepted path is absolute", text);
  require(text.find('\0') == std::string::npos, "the system would cut no accepted path", text);
}

void check_accepted(const Configuration& configuration) {
  check_path(configuration.coordinator.log);
  for (const ResourceManagerConfiguration& rm : configuration.resource_managers) {
    check_path(rm.data);
    require(!rm.name.empty() && !rm.address.empty(), "a resource manager has name and address");
  }
  const std::string written = to_toml(configuration);
  const Result<Configuration> again = parse_configuration(written, kElsewhere);
  require(again.has_value(), "a file that was written is accepted",
          again ? "" : std::string_view(again.error().message));
  require(*again == configuration, "a file that was written means the same", written);
  require(to_toml(*again) == written, "a file is written the same again", written);
}

}  // namespace
}  // namespace twofold::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace twofold;
  const std::string_view text = fuzz::Input(data, size).rest();
  const Result<Configuration> configuration = parse_configuration(text, fuzz::kFile);
  if (configuration) {
    fuzz::check_accepted(*configuration);
    return 0;
  }
  fuzz::require_sentence(configuration.error());
  fuzz::require(configuration.error().message.starts_with(fuzz::kFile.string() + ":"),
                "an error begins with file and line", configuration.error().message);
  return 0;
}
