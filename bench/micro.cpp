// Micro-benchmarks: the frame codec, the lock table, group commit, and the coordinator's core from
// submission to end with two branches that vote at once.
#include <benchmark/benchmark.h>

#include <atomic>
#include <filesystem>

#include "coordinator/core/coordinator.h"
#include "log/group_commit.h"
#include "protocol/endpoint.h"
#include "protocol/frame.h"
#include "protocol/wire.pb.h"
#include "resource_manager/core/lock_table.h"

namespace twofold {
namespace {

wire::Frame start_frame() {
  wire::Frame frame;
  frame.set_request(7);
  wire::Start& start = *frame.mutable_start();
  start.mutable_xid()->set_gtrid(std::string(36, 'g'));
  start.mutable_xid()->set_bqual(std::string(10, 'b'));
  start.set_work(std::string(80, 'w'));
  start.set_then(wire::THEN_PREPARE);
  return frame;
}

void frame_codec(benchmark::State& state) {
  const wire::Frame frame = start_frame();
  FrameReader reader(kFrameBytesMaxDefault);
  std::string bytes;
  wire::Frame parsed;
  for (auto _ : state) {
    bytes.clear();
    append_frame(frame, bytes);
    reader.append(bytes);
    std::string_view payload;
    benchmark::DoNotOptimize(
        reader.next(payload) &&
        parsed.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(frame_codec);

void lock_table(benchmark::State& state) {
  using namespace resource_manager;
  LockTable table;
  const std::vector<LockRequest> requests = {{"customer/c-0001", LockMode::exclusive},
                                             {"restaurant/r-01", LockMode::exclusive}};
  std::vector<LockTable::Owner> ready;
  LockTable::Owner owner = 0;
  for (auto _ : state) {
    table.request(++owner, requests, Time{});
    table.release(owner, Time{}, ready);
    ready.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(lock_table);

// One committed transaction over two branches.
void coordinator_core(benchmark::State& state) {
  using namespace coordinator;
  Options options;
  options.resource_managers = {"orders", "payments"};
  options.outcomes_max = 1'000;
  Epoch epoch{"main", LogId{1}, {1, 1}, {}};
  Coordinator core(options, epoch, {}, Time{});
  std::vector<Effect> effects;
  core.step(LinkUp{0, 1, 1}, Time{}, effects);
  core.step(LinkUp{1, 1, 2}, Time{}, effects);
  for (auto _ : state) {
    effects.clear();
    Submit submit;
    submit.branches = {{"orders", "work"}, {"payments", "work"}};
    core.step(std::move(submit), Time{}, effects);
    for (std::size_t i = 0; i < effects.size(); ++i) {  // answers append further effects
      const Effect effect = effects[i];
      if (const auto* start = std::get_if<Start>(&effect)) {
        core.step(Voted{start->branch, Xa::ok, {}, {}, {}, false, start->rm}, Time{}, effects);
      } else if (const auto* persist = std::get_if<Persist>(&effect)) {
        core.step(Durable{persist->ticket}, Time{}, effects);
      } else if (const auto* commit = std::get_if<Commit>(&effect)) {
        Acknowledged done;
        done.rm = commit->rm;
        done.branch = commit->branch;
        core.step(std::move(done), Time{}, effects);
      }
    }
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(coordinator_core);

// Forced groups of as many writes as the argument says, on this machine's temporary folder.
void group_commit(benchmark::State& state) {
  const auto directory = std::filesystem::temp_directory_path() / "twofold-micro";
  std::filesystem::remove_all(directory);
  {
    auto environment = lmdb::Environment::create(directory, {64u << 20, {"meta", "data"}}).value();
    LmdbTarget target(*environment);
    std::atomic<std::uint64_t> told = 0;
    GroupCommit commit(target, {}, [&](GroupResult result) {
      told += result.durable.size();
      told.notify_one();
    });
    std::uint64_t ticket = 0;
    for (auto _ : state) {
      std::vector<Write> writes(static_cast<std::size_t>(state.range(0)));
      for (Write& write : writes) {
        write.ticket = ++ticket;
        const std::string key = std::to_string(ticket % 10'000);
        write.mutations.push_back({Mutation::Kind::put, 1, key, std::string(100, 'v')});
      }
      commit.submit(std::move(writes));
      for (std::uint64_t now = told; now < ticket; now = told) told.wait(now);
    }
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  std::filesystem::remove_all(directory);
}
BENCHMARK(group_commit)->Arg(1)->Arg(64)->UseRealTime();

}  // namespace
}  // namespace twofold

BENCHMARK_MAIN();
