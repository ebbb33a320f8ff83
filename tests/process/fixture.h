// A private cluster for one test: real processes in a temporary folder on free ports, all killed
// and removed when the test ends, whether it passes or not.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "lab/cluster/cluster.h"

namespace twofold::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Ran {
  int status = -1;  // exit status; 128 + signal
  std::string out, err;
};
// Runs a program of ours to its end.
Ran run(const std::string& program, const std::vector<std::string>& arguments);

std::string read_file(const std::filesystem::path& file);

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // The cluster's TOML; empty: a coordinator and the four stores.
  virtual std::string configuration() const { return {}; }

  lab::Cluster& cluster() { return *cluster_; }
  std::string data() const { return directory_.path().string(); }
  std::filesystem::path scratch(const std::string& name) const { return scratch_.path() / name; }

  client::Options client_options() const;
  Address address(const std::string& name) const;
  wire::Frame call(const std::string& name, const wire::Frame& request) const;

  // All keys of a store with their integers.
  std::map<std::string, std::int64_t> integers(const std::string& rm) const;
  std::int64_t coordinator_number(const std::string& name) const;

  // Until each has served. Of what that takes the log keeps the participants only.
  void read_from(const std::vector<std::string>& rms) const;

  // Waits until nothing is live at the coordinator, nothing in doubt and no lock held anywhere;
  // fails the test with what is left when that takes longer than `patience`.
  void expect_quiet(std::chrono::seconds patience = std::chrono::seconds{30}) const;
  void expect_no_sanitizer_reports() const;
  // Prints the processes' logs when the test has failed.
  void tell_logs() const;

 private:
  std::string left_over() const;
  TemporaryDirectory directory_, scratch_;
  std::optional<lab::Cluster> cluster_;
};

}  // namespace twofold::test
