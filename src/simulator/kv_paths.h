// Where keys and values lie beyond the device, and what moving them takes: the further tiers of a
// replica and the links between replicas. How many blocks a tier has the replica's capacity says.
// Values.
#pragma once

#include <cstdint>

namespace pelton::simulator {

struct KvPath {
  double bytes_per_s = 0;  // 0: moving takes no time
  double latency_s = 0;    // before the first byte

  double seconds(double bytes) const {
    return bytes_per_s > 0 ? latency_s + bytes / bytes_per_s : latency_s;
  }
};

struct KvPaths {
  KvPath host;  // between the device and the host's memory; from there a step waits for it
  KvPath disk;  // between the host's memory and the disk, one block after the other
  // A replica's link, in each direction: transfers that leave or reach the same replica share it.
  // 0 bytes a second: replicas exchange nothing.
  KvPath link;

  bool links_peers() const { return link.bytes_per_s > 0; }
};

}  // namespace pelton::simulator
