#include "resource_manager/adapters/store_data.h"

#include <charconv>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "log/environment_files.h"
#include "log/group_commit.h"
#include "resource_manager/adapters/store_rows.h"

namespace twofold::resource_manager::store {
namespace {

constexpr std::string_view kFormat = "twofold store 1";

std::uint64_t random_id() {
  std::random_device device;
  std::uint64_t id = 0;
  while (id == 0) id = static_cast<std::uint64_t>(device()) << 32 | device();
  return id;
}

Error with_directory(const StoreOptions& options, Fault fault, std::string_view what) {
  return Error{fault,
               "the store's data in " + options.directory.string() + " " + std::string(what)};
}

bool missing_or_empty(const std::filesystem::path& directory) {
  std::error_code ignored;
  return !std::filesystem::exists(directory, ignored) ||
         std::filesystem::is_empty(directory, ignored);
}

Result<std::unique_ptr<lmdb::Environment>> open_environment(const StoreOptions& options) {
  const lmdb::EnvironmentOptions environment{options.map_bytes,
                                             {"meta", "data", "prepared", "outcomes", "nodes"}};
  // Unfinished: what a crash while making it left behind.
  if (missing_or_empty(options.directory) ||
      lmdb::presence(options.directory) == lmdb::Presence::unfinished) {
    return lmdb::Environment::create(options.directory, environment);
  }
  auto opened = lmdb::Environment::open(options.directory, environment);
  if (!opened && opened.error().fault == Fault::not_found) {
    return with_directory(options, Fault::exists,
                          "cannot be made: the directory holds other files. Name an empty or "
                          "missing directory with --data");
  }
  return opened;
}

// Also after a crash between making the environment and this.
std::uint64_t initialise(lmdb::Environment& environment) {
  const std::uint64_t store_id = random_id();
  Write write;
  write.mutations.push_back({Mutation::Kind::put, kMeta, "format", std::string(kFormat)});
  write.mutations.push_back({Mutation::Kind::put, kMeta, "store_id", std::to_string(store_id)});
  LmdbTarget target(environment);
  const Write* const writes[] = {&write};
  if (target.apply(target.last_group() + 1, writes) != GroupTarget::Applied::durable) {
    throw std::runtime_error("the store's data in " + environment.directory().string() +
                             " cannot be made: its map or the disk has no room");
  }
  return store_id;
}

bool empty_of_data(const lmdb::Reader& reader, const lmdb::Environment& environment) {
  for (std::uint32_t table = kMeta; table <= kNodes; ++table) {
    if (reader.count(environment.table(table)) != 0) return false;
  }
  return true;
}

Result<std::uint64_t> identify(const StoreOptions& options, lmdb::Environment& environment) {
  std::string format, store_id;
  bool empty = false;
  {
    lmdb::Reader reader(environment);
    format = reader.get(environment.table(kMeta), "format").value_or("");
    store_id = reader.get(environment.table(kMeta), "store_id").value_or("");
    empty = empty_of_data(reader, environment);
  }
  if (empty) return initialise(environment);
  if (format.empty()) {
    return with_directory(options, Fault::unsupported,
                          "is not a store's. Name the store's own directory with --data");
  }
  if (format != kFormat) {
    return with_directory(options, Fault::unsupported,
                          "has the format '" + format + "', and this build knows '" +
                              std::string(kFormat) + "': start the version that wrote it");
  }
  std::uint64_t id = 0;
  const auto [end, fault] = std::from_chars(store_id.data(), store_id.data() + store_id.size(), id);
  if (fault != std::errc{} || end != store_id.data() + store_id.size() || id == 0) {
    return with_directory(options, Fault::damaged,
                          "has lost its identity (store_id): put a copy of the data back");
  }
  return id;
}

}  // namespace

Result<Data> open_data(const StoreOptions& options) {
  auto environment = open_environment(options);
  if (!environment) return environment.error();
  Result<std::uint64_t> id = identify(options, **environment);
  if (!id) return id.error();
  return Data{std::move(*environment), *id};
}

}  // namespace twofold::resource_manager::store
