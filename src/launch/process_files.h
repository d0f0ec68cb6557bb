// What launchers and their replicas write into files and the kernel says in others: text in,
// values out, and the reverse. What is no such text gives nothing. Pure but for what looks at files
// and processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/launcher.h"
#include "net/url.h"

namespace pelton::launch {

struct WrittenOrder {
  ReplicaOrder order;
  int64_t unix_ms = 0;  // when it was given
};

// "POOL\nORDINAL TOKEN MILLISECONDS\n".
std::string order_text(const WrittenOrder& written);
std::optional<WrittenOrder> parse_order(std::string_view text);

// Who has a state folder (folder_lock.h), as the file of its lock says it.
struct FolderHolder {
  uint64_t epoch = 0;  // of its lead; 0: it has none
  int pid = 0;
  std::string identity;  // what it differs by from others of this number
};

// "EPOCH PID IDENTITY\n".
std::string holder_text(const FolderHolder& holder);
std::optional<FolderHolder> parse_holder(std::string_view text);

// A pool's name where only a file's name may stand: no '/', no '.', nothing hidden.
std::string file_name_of(std::string_view pool);

// Of what `pelton serve` prints: where it listens for gateways ("fleet on HOST:PORT").
std::optional<net::HostPort> fleet_address_of(std::string_view output);

// Of a file; 0: it cannot be seen.
int64_t bytes_of(const std::string& file);

// Whether another replica would end likewise, as `pelton serve` ends: a wrong command line, a wrong
// file, no such model, too little memory; or as shells say that there is no such program.
bool is_hopeless_exit(int code);
// "exit code 4, model not found or unreadable".
std::string exit_text(int code);
// The last line there that a program named pelton has said as its own, without its name and
// bounded: why it ended. Empty: there is none.
std::string last_said(const std::string& log_file);

// Of a file of /proc, whose size the kernel does not say; empty: it cannot be seen.
std::string kernel_text(const std::string& file);

// When a process began, in the kernel's ticks since the machine did; 0: it cannot be seen.
int64_t start_ticks_of(int pid);

// What a process was started with, its program first; empty: it cannot be seen.
std::vector<std::string> command_line_of(int pid);

// Whether it runs another file than `program` is by now, as after an upgrade, in place or beside.
bool is_program_replaced(int pid, const std::string& program);

// Of two command lines, the program first: which flags differ, without their values, as these may
// be secrets: "other --max-num-seqs, --seed". Words before the first flag are "the model". Empty:
// none does, or one of them is not known.
std::string differing_words(const std::vector<std::string>& was,
                            const std::vector<std::string>& now);

// Memory pages of a process that are resident; 0: it cannot be seen.
int64_t resident_pages_of(int pid);

}  // namespace pelton::launch
