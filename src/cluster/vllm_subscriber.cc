#include "cluster/vllm_subscriber.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <zmq.h>

namespace pelton::cluster {
namespace {

constexpr int kLookMs = 50;  // whether it is to end
// Together what a worker may have the gateway hold. A batch is of one step, some KiB; what does
// not fit is dropped by its publisher, which is a gap.
constexpr int64_t kMessageBytesMax = int64_t{4} << 20;
constexpr int kQueueMax = 64;  // messages
constexpr int kReplayMs = 2'000;
constexpr int kReplayedMax = 10'000;  // batches, as many as vLLM keeps
constexpr auto kSocketAgain = std::chrono::seconds(1);
constexpr const char* kLinkEvents = "inproc://link";
constexpr size_t kNumberBytes = 8;
constexpr size_t kPublisherBytes = 16;  // of newer versions, behind the number
constexpr int64_t kEnd = -1;

struct SocketClose {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Socket = std::unique_ptr<void, SocketClose>;

bool set(void* socket, int option, int value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

// Null: this process has no more of them (EMFILE).
Socket open_socket(void* context, int type, const std::string& host, int port) {
  Socket socket(zmq_socket(context, type));
  const bool is_set =
      socket != nullptr && set(socket.get(), ZMQ_LINGER, 0) && set(socket.get(), ZMQ_IPV6, 1) &&
      set(socket.get(), ZMQ_RCVHWM, kQueueMax) && set(socket.get(), ZMQ_RECONNECT_IVL_MAX, 1'000) &&
      set(socket.get(), ZMQ_HEARTBEAT_IVL, 1'000) &&
      set(socket.get(), ZMQ_HEARTBEAT_TIMEOUT, 3'000) &&
      zmq_setsockopt(socket.get(), ZMQ_MAXMSGSIZE, &kMessageBytesMax, sizeof kMessageBytesMax) == 0;
  if (!is_set) return nullptr;
  if (type == ZMQ_SUB && zmq_setsockopt(socket.get(), ZMQ_SUBSCRIBE, "", 0) != 0) return nullptr;
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string address =
      is_v6 ? fmt::format("tcp://[{}]:{}", host, port) : fmt::format("tcp://{}:{}", host, port);
  // Of an address that cannot be nothing comes, as of one where nobody listens.
  (void)zmq_connect(socket.get(), address.c_str());
  return socket;
}

// That the socket's connection has broken is a message of this one.
Socket watch_link(void* context, void* socket) {
  if (zmq_socket_monitor(socket, kLinkEvents, ZMQ_EVENT_DISCONNECTED) != 0) return nullptr;
  Socket monitor(zmq_socket(context, ZMQ_PAIR));
  if (monitor == nullptr || zmq_connect(monitor.get(), kLinkEvents) != 0) return nullptr;
  return monitor;
}

bool waits(void* socket, int ms) {
  zmq_pollitem_t item{.socket = socket, .fd = 0, .events = ZMQ_POLLIN, .revents = 0};
  return zmq_poll(&item, 1, ms) > 0;
}

// All parts of the next message, of which there is one.
std::vector<std::string> receive(void* socket) {
  constexpr size_t kPartsMax = 8;
  std::vector<std::string> parts;
  for (;;) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return {};
    }
    if (parts.size() < kPartsMax) {
      parts.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    }
    const bool more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
    if (!more) return parts;
  }
}

int64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return static_cast<int64_t>(value);
}

}  // namespace

EventSequence::Place EventSequence::place_of(int64_t number, const std::string& publisher) const {
  if (next_ > 0 && publisher != publisher_) return Place::kRestart;
  if (number == next_) return Place::kNext;
  if (number > next_) return Place::kGap;
  if (publisher.empty()) return Place::kRestart;
  return next_ - number <= kLateMax && number > 0 ? Place::kOld : Place::kRestart;
}

VllmSubscriber::VllmSubscriber(Options options)
    : options_(std::move(options)), context_(zmq_ctx_new()), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-kvevents");
}

VllmSubscriber::~VllmSubscriber() {
  stopping_ = true;
  thread_.join();
  zmq_ctx_term(context_);
}

void VllmSubscriber::run() {
  while (!stopping_) {
    listen();
    const auto again = std::chrono::steady_clock::now() + kSocketAgain;
    while (!stopping_ && std::chrono::steady_clock::now() < again) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }
}

void VllmSubscriber::listen() {
  const Socket socket = open_socket(context_, ZMQ_SUB, options_.host, options_.port);
  const Socket link = socket == nullptr ? nullptr : watch_link(context_, socket.get());
  if (link == nullptr) return;
  while (!stopping_) {
    zmq_pollitem_t items[] = {{.socket = socket.get(), .fd = 0, .events = ZMQ_POLLIN, .revents = 0},
                              {.socket = link.get(), .fd = 0, .events = ZMQ_POLLIN, .revents = 0}};
    if (zmq_poll(items, 2, kLookMs) <= 0) continue;
    // First what came before the break.
    drain(socket.get());
    if ((items[1].revents & ZMQ_POLLIN) == 0) continue;
    while (!receive(link.get()).empty()) {
    }
    sequence_.restart();
    options_.on_news({.reset = Reset::kLinkLost, .events = {}});
  }
}

void VllmSubscriber::drain(void* socket) {
  while (!stopping_) {
    std::vector<std::string> parts = receive(socket);
    if (parts.empty()) return;
    // Topic, number, batch; others are nobody's of ours.
    if (parts.size() != 3) continue;
    const std::string& number = parts[1];
    if (number.size() != kNumberBytes && number.size() != kNumberBytes + kPublisherBytes) continue;
    take({.number = big_endian(std::string_view(number).substr(0, kNumberBytes)),
          .publisher = number.substr(kNumberBytes),
          .payload = std::move(parts[2])});
  }
}

void VllmSubscriber::take(Batch batch) {
  using Place = EventSequence::Place;
  const Place place = sequence_.place_of(batch.number, batch.publisher);
  if (place == Place::kOld || batch.number < 0) return;
  if (place == Place::kNext) return apply(batch, {});
  std::optional<Reset> reset;
  if (place == Place::kRestart) {
    sequence_.restart();
    reset = Reset::kRestart;
  }
  // Said again are those from where we stand on, if they are still known: otherwise there is a gap.
  if (batch.number > sequence_.next()) reset = replay(batch.number, reset);
  if (!reset && batch.number > sequence_.next()) reset = Reset::kGap;
  apply(batch, reset);
}

void VllmSubscriber::apply(const Batch& batch, std::optional<Reset> reset) {
  sequence_.note(batch.number, batch.publisher);
  Result<std::vector<VllmEvent>> events = parse_vllm_batch(batch.payload);
  // What it says is not understood: what it let go would be taken for held.
  if (!events.ok()) return options_.on_news({.reset = Reset::kUnreadable, .events = {}});
  options_.on_news({.reset = reset, .events = *std::move(events)});
}

std::optional<VllmSubscriber::Reset> VllmSubscriber::replay(int64_t until,
                                                            std::optional<Reset> reset) {
  if (options_.replay_port == 0) return reset;
  const Socket socket = open_socket(context_, ZMQ_DEALER, options_.host, options_.replay_port);
  const std::string from = big_endian(sequence_.next());
  if (socket == nullptr || zmq_send(socket.get(), "", 0, ZMQ_SNDMORE) < 0 ||
      zmq_send(socket.get(), from.data(), from.size(), 0) < 0) {
    return reset;
  }
  int said = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kReplayMs);
  while (!stopping_ && std::chrono::steady_clock::now() < end && said < kReplayedMax) {
    if (!waits(socket.get(), kLookMs)) continue;
    const std::vector<std::string> parts = receive(socket.get());
    // A delimiter, the number, the batch.
    if (parts.size() != 3 || parts[1].size() < kNumberBytes) continue;
    ++said;
    const int64_t number = big_endian(std::string_view(parts[1]).substr(0, kNumberBytes));
    if (number == kEnd) break;
    if (number < sequence_.next() || number >= until) continue;
    if (!reset && number > sequence_.next()) reset = Reset::kGap;
    apply({.number = number, .publisher = parts[1].substr(kNumberBytes), .payload = parts[2]},
          std::exchange(reset, {}));
  }
  return reset;
}

std::string_view name_of(VllmSubscriber::Reset reset) {
  switch (reset) {
    case VllmSubscriber::Reset::kGap:
      return "gap";
    case VllmSubscriber::Reset::kRestart:
      return "restart";
    case VllmSubscriber::Reset::kLinkLost:
      return "link_lost";
    case VllmSubscriber::Reset::kUnreadable:
      return "unreadable";
  }
  return "";
}

}  // namespace pelton::cluster
