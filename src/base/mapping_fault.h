// What happens when a mapped file stops being readable: it was cut short, its disk failed. The
// kernel then sends SIGBUS in the midst of a computation, and there is nothing to go on with. Once
// installed, such a signal ends the process with a sentence that names the file, instead of a bare
// "Bus error". Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace pelton::base {

// For the program's entry, once.
void end_on_mapping_fault(int exit_code);

// MappedFile registers here what it maps, so that the sentence can name it. Beyond 4096 mappings at
// a time the others go unlisted, which costs only the name.
void list_mapping(const std::string& path, const void* data, size_t size);
void unlist_mapping(const void* data);

}  // namespace pelton::base
