#include "rpc/stream_writer.h"

#include <utility>

namespace pelton::rpc {

void StreamWriter::push(std::string message) {
  if (ended_) return;
  queued_bytes_ += message.size() + 1;  // an empty one is one, too
  queue_.push_back(std::move(message));
  go_on();
}

void StreamWriter::end(const grpc::Status& status) {
  status_ = status;
  end_asked_ = true;
  go_on();
}

void StreamWriter::end_now(const grpc::Status& status) {
  if (std::exchange(ended_, true)) return;
  if (write_runs_ && queue_.size() > 1) queue_.resize(1);  // gRPC may be reading the first
  begin_watch();
  stream_.finish_stream(status);
}

void StreamWriter::written() {
  write_runs_ = false;
  if (!queue_.empty()) {
    queued_bytes_ -= queue_.front().size() + 1;
    queue_.pop_front();
  }
  go_on();
}

void StreamWriter::go_on() {
  if (write_runs_ || ended_) return;
  if (!queue_.empty()) {
    write_runs_ = true;
    begin_watch();
    stream_.start_write(queue_.front());
  } else if (end_asked_) {
    end_now(status_);
  }
}

// One timer for many writes and the goodbye: it looks at the one that runs when its time comes.
// Without, a client that takes nothing would keep its call, and what is written to it, for good.
void StreamWriter::begin_watch() {
  write_began_ = std::chrono::steady_clock::now();
  if (!std::exchange(watched_, true)) watch(stall_time_max_);
}

void StreamWriter::watch(std::chrono::milliseconds after) {
  loop_.post_after(after, [this, weak = std::weak_ptr<char>(life_)] {
    if (weak.expired()) return;
    watched_ = false;
    if (!write_runs_ && !ended_) return;
    const auto ran = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - write_began_);
    if (ran >= stall_time_max_) return stream_.cancel_stream();
    watched_ = true;
    watch(stall_time_max_ - ran);
  });
}

}  // namespace pelton::rpc
