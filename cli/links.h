// Waits until a coordinator that runs has its sessions to the participants that run, so that the
// command that follows a start is not refused for want of one.
#pragma once

#include <string>
#include <vector>

#include "lab/cluster/cluster.h"

namespace twofold::cli {

std::vector<std::string> participants_of(const lab::Cluster& cluster);

// For 5 s at most; then says on stderr what the coordinator says of those that are missing. At once
// if no coordinator runs; of a participant that ends meanwhile nothing is waited for.
void await_links(const lab::Cluster& cluster, std::vector<std::string> participants);

}  // namespace twofold::cli
