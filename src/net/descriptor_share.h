// How many connections a listener may take, so that everything else in the process keeps the file
// descriptors that it needs. Pure but for looking at what the process has open; any thread.
#pragma once

namespace pelton::net {

struct DescriptorShare {
  int wanted = 0;    // connections
  int promised = 0;  // descriptors that other listeners may come to take
  // So many stay free for everything else; of very few, half of those that are left now.
  int spared = 0;
  int refusals = 0;  // connections beyond, which are taken to be told that they are too many
};

// At least one, at most as many as wanted.
int fitting_connections(const DescriptorShare& share);

}  // namespace pelton::net
