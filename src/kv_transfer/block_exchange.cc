#include "kv_transfer/block_exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"
#include "kv_transfer/peer_id.h"

namespace pelton::kv_transfer {

using namespace std::chrono_literals;
using Outcome = kv::PeerFetched::Outcome;

namespace {

// Between two looks whether somebody is to stop.
constexpr auto kSlice = 20ms;
constexpr auto kRoomMax = 500ms;  // until one that is silent has gone: some slices
// A prompt may be computed for so long; while nothing of it comes its transfer ends by itself.
constexpr auto kAheadMax = 1h;
constexpr auto kGreetingMax = 2s;
constexpr auto kConnectMax = 1s;
constexpr size_t kWantBytesMax = size_t{2} << 20;
constexpr size_t kRecordSpare = 4096;
constexpr uint32_t kCreditBytes = kPeerWindowBytes / 8;
constexpr size_t kIdleMax = 32;

std::string drawn_id() {
  return base::sha256(base::random_bytes(32)).substr(0, 32);
}

int64_t unix_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

int64_t steady_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string address_of(const kv::PeerFetch& fetch) {
  return fmt::format("{} {}", fetch.host, fetch.port);
}

Error protocol(std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("a peer's connection: {}", why)};
}

// An address of either family, or a negative number.
int listen_on(const std::string& address, int port, int* actual) {
  sockaddr_storage place{};
  socklen_t size = 0;
  auto* const four = reinterpret_cast<sockaddr_in*>(&place);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&place);
  if (::inet_pton(AF_INET, address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in6);
  } else {
    return -1;
  }
  const int socket = ::socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  constexpr int kBacklog = 64;
  if (::bind(socket, reinterpret_cast<sockaddr*>(&place), size) != 0 ||
      ::listen(socket, kBacklog) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    ::close(socket);
    return -1;
  }
  *actual = ntohs(place.ss_family == AF_INET ? four->sin_port : six->sin6_port);
  return socket;
}

}  // namespace

Result<std::unique_ptr<BlockExchange>> BlockExchange::open(const Options& options,
                                                           BlockMemory& memory) {
  int port = 0;
  const int listener = listen_on(options.exchange.address, options.exchange.port, &port);
  if (listener < 0) {
    return Error{ErrorCode::kIo,
                 fmt::format("--kv-port {}: nothing can listen there on {}: {}",
                             options.exchange.port, options.exchange.address, std::strerror(errno)),
                 "kv-port"};
  }
  std::unique_ptr<BlockExchange> exchange(new BlockExchange(options, memory, listener, port));
  BlockExchange* const raw = exchange.get();
  exchange->acceptor_ = std::thread([raw] { raw->accept_peers(); });
  for (std::thread& one : exchange->fetchers_) one = std::thread([raw] { raw->fetch_all(); });
  return exchange;
}

BlockExchange::BlockExchange(const Options& options, BlockMemory& memory, int listener, int port)
    : options_(options),
      memory_(memory),
      listener_(listener),
      place_{.id = peer_id(drawn_id(), options.layout), .port = port} {}

BlockExchange::~BlockExchange() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_ = nullptr;
    for (const Connection& one : connections_) {
      if (one.channel != nullptr) one.channel->shut_down();
    }
  }
  changed_.notify_all();
  acceptor_.join();
  for (std::thread& one : fetchers_) one.join();
  for (Connection& one : connections_) one.thread.join();
  ::close(listener_);
}

void BlockExchange::on_news(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

// Under the lock, so that nobody is called who has been replaced.
void BlockExchange::news() {
  if (wake_) wake_();
}

// ---- the engine's side

void BlockExchange::fetch(kv::PeerFetch fetch) {
  {
    std::lock_guard lock(mutex_);
    known_.insert(fetch.id);
    const Clock::time_point until = Clock::now() + std::chrono::nanoseconds(fetch.limit_ns);
    fetches_.push_back({.fetch = std::move(fetch), .until = until});
  }
  changed_.notify_all();
}

void BlockExchange::cancel(int64_t id) {
  std::lock_guard lock(mutex_);
  if (known_.contains(id)) cancelled_.insert(id);
}

std::vector<kv::PeerFetched> BlockExchange::take_fetched() {
  std::lock_guard lock(mutex_);
  return std::exchange(fetched_, {});
}

std::vector<kv::PeerAsk> BlockExchange::take_asks() {
  std::lock_guard lock(mutex_);
  return std::exchange(asks_, {});
}

void BlockExchange::offer(kv::PeerOffer offer) {
  {
    std::lock_guard lock(mutex_);
    const int64_t id = offer.id;
    if (awaited_.contains(id)) {
      std::shared_ptr<Offered>& offered = offers_[id];
      if (offered == nullptr) offered = std::make_shared<Offered>();
      offered->goes_on = offer.goes_on;
      offered->parts.push_back(std::move(offer));
    } else {
      over_.push_back(id);  // whoever asked has gone
      news();
    }
  }
  changed_.notify_all();
}

std::vector<int64_t> BlockExchange::take_over() {
  std::lock_guard lock(mutex_);
  return std::exchange(over_, {});
}

kv::PeerTransfers::Served BlockExchange::served() const {
  return {.blocks = blocks_sent_, .bytes = bytes_sent_, .refused = refused_};
}

void BlockExchange::revoke_all() {
  std::lock_guard lock(mutex_);
  for (auto& [id, offered] : offers_) offered->is_revoked = true;
  const std::unique_lock alone(reading_);  // whoever reads by now has ended
}

// ---- the source's side

void BlockExchange::accept_peers() {
  pthread_setname_np(pthread_self(), "pelton-kvlisten");
  while (!stopping_) {
    reap();
    pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(kSlice.count()) * 5) <= 0) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      std::this_thread::sleep_for(kSlice);  // no descriptor is left: it stays readable
      continue;
    }
    if (!make_room()) {
      ::close(socket);
      ++refused_;
      continue;
    }
    std::lock_guard lock(mutex_);
    Connection& one = connections_.emplace_back();
    one.thread = std::thread([this, &one, socket] { serve(one, socket); });
  }
}

// One that is kept for a next transfer costs its peer a handshake; who is not let in computes.
bool BlockExchange::make_room() {
  const auto is_free = [this] { return connections_.size() < options_.connections_max; };
  {
    std::lock_guard lock(mutex_);
    if (is_free()) return true;
    Connection* oldest = nullptr;
    for (Connection& one : connections_) {
      if (one.is_over) oldest = &one;
      if (!one.idle_since || (oldest != nullptr && oldest->is_over)) continue;
      if (oldest == nullptr || *one.idle_since < *oldest->idle_since) oldest = &one;
    }
    if (oldest == nullptr) return false;
    oldest->makes_room = true;
  }
  for (const auto until = Clock::now() + kRoomMax; !stopping_ && Clock::now() < until;) {
    reap();
    {
      std::lock_guard lock(mutex_);
      if (is_free()) return true;
    }
    std::this_thread::sleep_for(kSlice / 4);
  }
  return false;
}

void BlockExchange::note_idle(Connection& connection, bool is_idle) {
  std::lock_guard lock(mutex_);
  connection.idle_since = is_idle ? std::optional(Clock::now()) : std::nullopt;
}

void BlockExchange::reap() {
  std::list<Connection> over;
  {
    std::lock_guard lock(mutex_);
    for (auto one = connections_.begin(); one != connections_.end();) {
      const auto next = std::next(one);
      if (one->is_over) over.splice(over.end(), connections_, one);
      one = next;
    }
  }
  for (Connection& one : over) one.thread.join();
}

void BlockExchange::serve(Connection& connection, int socket) {
  pthread_setname_np(pthread_self(), "pelton-kvserve");
  Result<std::unique_ptr<PeerChannel>> accepted =
      PeerChannel::accept(socket, options_.exchange.keys, Clock::now() + kGreetingMax);
  PeerChannel* channel = nullptr;
  if (accepted.ok()) {
    std::lock_guard lock(mutex_);
    connection.channel = *std::move(accepted);
    channel = connection.channel.get();
  }
  std::string peer;
  if (channel != nullptr && greet_peer(*channel, peer).ok()) {
    note_idle(connection, true);
    for (auto silent_until = Clock::now() + options_.idle_max; !stopping_;) {
      if (connection.makes_room) break;
      const auto came = channel->receive(Clock::now() + kSlice * 5);
      if (!came.ok() || (!*came && Clock::now() > silent_until)) break;
      if (!*came) {
        channel->release_buffers();
        continue;
      }
      const Result<PeerMessage> message = decode_peer_message(**came);
      if (!message.ok()) break;
      // Of a transfer that is over: they were on their way.
      if (std::holds_alternative<PeerCredit>(*message)) continue;
      if (std::holds_alternative<PeerCancel>(*message)) continue;
      const auto* const want = std::get_if<PeerWant>(&*message);
      if (want == nullptr) break;
      note_idle(connection, false);
      if (!answer(*channel, peer, *want).ok()) break;
      note_idle(connection, true);
      silent_until = Clock::now() + options_.idle_max;
    }
  } else {
    ++refused_;
  }
  std::lock_guard lock(mutex_);
  connection.channel.reset();
  connection.is_over = true;
}

Result<void> BlockExchange::greet_peer(PeerChannel& channel, std::string& peer) {
  const Clock::time_point until = Clock::now() + kGreetingMax;
  TRY_ASSIGN(const std::optional<std::string_view> came, channel.receive(until));
  if (!came) return protocol("no greeting");
  TRY_ASSIGN(const PeerMessage message, decode_peer_message(*came));
  const auto* const hello = std::get_if<PeerHello>(&message);
  if (hello == nullptr) return protocol("no greeting");
  const std::string differs = difference(hello->layout, options_.layout);
  if (!differs.empty()) {
    (void)channel.send(encode(PeerRefuse{.why = differs}), until).ok();
    return protocol(differs);
  }
  peer = hello->id;
  channel.set_record_max(kWantBytesMax);
  return channel.send(encode(PeerWelcome{}), until);
}

Result<void> BlockExchange::check(const PeerWant& want, const std::string& peer) {
  TRY_ASSIGN(const PeerTicket ticket, PeerTicket::open(want.ticket, options_.exchange.keys));
  TRY(used_.use(
      ticket,
      {.source = place_.id, .target = peer, .now_ms = unix_ms(), .steady_ms = steady_ms()}));
  if (want.held.size() != options_.groups.size()) return protocol("other KV groups");
  if (grant_of(want.names) != ticket.grant)
    return protocol("blocks that the ticket does not grant");
  return {};
}

Result<void> BlockExchange::answer(PeerChannel& channel, const std::string& peer,
                                   const PeerWant& want) {
  const Clock::time_point until =
      Clock::now() + std::min<std::chrono::milliseconds>(std::chrono::milliseconds(want.limit_ms),
                                                         options_.idle_max);
  const auto send = [&](const PeerMessage& message) {
    return channel.send(encode(message), Clock::now() + options_.pin_max);
  };
  if (const Result<void> checked = check(want, peer); !checked.ok()) {
    ++refused_;
    TRY(send(PeerHave{.transfer = want.transfer, .refused = checked.error().message}));
    return send(PeerDone{.transfer = want.transfer});
  }
  int64_t id = 0;
  {
    std::lock_guard lock(mutex_);
    id = next_ask_++;
    asks_.push_back({.id = id, .names = want.names, .held = want.held, .ahead = want.ahead});
    awaited_.insert(id);
    news();
  }
  Sending sending{.transfer = want.transfer};
  const std::shared_ptr<Offered> offered = await_offer(channel, id, sending, until);
  Result<void> sent;
  if (offered == nullptr) {
    sent = send(PeerHave{.transfer = want.transfer, .refused = {}});
  } else {
    sent = send_parts(channel, *offered, sending, want.ahead ? Clock::now() + kAheadMax : until);
  }
  end_offer(id);
  TRY(std::move(sent));
  return send(PeerDone{.transfer = want.transfer});
}

std::shared_ptr<BlockExchange::Offered> BlockExchange::await_offer(PeerChannel& channel, int64_t id,
                                                                   Sending& sending,
                                                                   Clock::time_point until) {
  while (Clock::now() < until && !stopping_ && !sending.is_cancelled) {
    {
      std::unique_lock lock(mutex_);
      const auto is_there = [&] { return stopping_ || offers_.contains(id); };
      if (changed_.wait_for(lock, kSlice, is_there)) {
        const auto found = offers_.find(id);
        return found == offers_.end() ? nullptr : found->second;
      }
    }
    if (channel.is_readable() && !hear(channel, sending, Clock::now()).ok()) return nullptr;
  }
  return nullptr;
}

// What the receiver says meanwhile; returns when something was said or it is too late.
Result<void> BlockExchange::hear(PeerChannel& channel, Sending& sending, Clock::time_point until) {
  TRY_ASSIGN(const std::optional<std::string_view> came, channel.receive(until));
  if (!came) return {};
  TRY_ASSIGN(const PeerMessage message, decode_peer_message(*came));
  if (const auto* const credit = std::get_if<PeerCredit>(&message)) {
    if (credit->transfer == sending.transfer) sending.in_window -= credit->bytes;
    if (sending.in_window < 0) return protocol("credit for more than was sent");
    return {};
  }
  const auto* const cancel = std::get_if<PeerCancel>(&message);
  if (cancel == nullptr) return protocol("a message amid a transfer");
  if (cancel->transfer == sending.transfer) sending.is_cancelled = true;
  return {};
}

bool BlockExchange::read_offered(const Offered& offered, const kv::PeerOffer::Block& block,
                                 std::span<char> into) {
  if (offered.is_revoked) return false;
  std::shared_lock lock(reading_);
  if (offered.is_revoked) return false;
  memory_.read_block(block.group, block.tier, block.block, into);
  return true;
}

// All of what is offered, as it is offered.
Result<void> BlockExchange::send_parts(PeerChannel& channel, Offered& offered, Sending& sending,
                                       Clock::time_point until) {
  for (bool is_first = true;; is_first = false) {
    kv::PeerOffer part;
    bool goes_on = false;
    {
      std::unique_lock lock(mutex_);
      const auto is_there = [&] { return stopping_ || !offered.parts.empty() || !offered.goes_on; };
      changed_.wait_for(lock, kSlice, is_there);
      if (!offered.parts.empty()) {
        part = std::move(offered.parts.front());
        offered.parts.pop_front();
      }
      goes_on = offered.goes_on || !offered.parts.empty();
    }
    if (channel.is_readable()) TRY(hear(channel, sending, Clock::now()));
    if (stopping_ || sending.is_cancelled || offered.is_revoked) return {};
    if (is_first || !part.blocks.empty()) TRY(send_part(channel, offered, part, sending));
    if (!goes_on || Clock::now() > until) return {};
  }
}

// Returns where there is room for so many bytes in the window, or nobody wants them any more.
Result<void> BlockExchange::await_window(PeerChannel& channel, Sending& sending, int64_t bytes) {
  const Clock::time_point until = Clock::now() + options_.pin_max;
  const auto is_full = [&] {
    return sending.in_window > 0 && sending.in_window + bytes > options_.uncredited_max;
  };
  while (!sending.is_cancelled && !stopping_ && (is_full() || channel.is_readable())) {
    if (Clock::now() > until) return protocol("no credit");
    TRY(hear(channel, sending,
             is_full() ? std::min(until, Clock::now() + kSlice * 5) : Clock::now()));
  }
  return {};
}

void BlockExchange::damage(std::span<char> message, int64_t bytes, int64_t number) const {
  const int one_in = options_.exchange.damage_one_in;
  if (one_in == 0 || number % one_in != 0) return;
  const size_t at =
      PeerData::kHeaderBytes + static_cast<size_t>(number * 7919) % static_cast<size_t>(bytes);
  message[at] = static_cast<char>(message[at] ^ 1 << number % 8);
}

Result<void> BlockExchange::send_part(PeerChannel& channel, Offered& offered,
                                      const kv::PeerOffer& part, Sending& sending) {
  TRY(channel.send(encode(PeerHave{.transfer = sending.transfer,
                                   .prefix_blocks = static_cast<uint32_t>(part.prefix_blocks),
                                   .blocks = static_cast<uint32_t>(part.blocks.size()),
                                   .refused = {}}),
                   Clock::now() + options_.pin_max));
  for (const kv::PeerOffer::Block& block : part.blocks) {
    const int64_t bytes = options_.groups[block.group].block_bytes;
    TRY(await_window(channel, sending, bytes));
    if (sending.is_cancelled || stopping_) return {};
    const std::span<char> message =
        channel.compose(PeerData::kHeaderBytes + static_cast<size_t>(bytes));
    begin_data(message, sending.transfer, block.group, block.name);
    if (!read_offered(offered, block, message.subspan(PeerData::kHeaderBytes))) return {};
    finish_data(message);
    damage(message, bytes, ++blocks_sent_);
    TRY(channel.send_composed(Clock::now() + options_.pin_max));
    bytes_sent_ += bytes;
    sending.in_window += bytes;
  }
  return {};
}

void BlockExchange::end_offer(int64_t id) {
  std::lock_guard lock(mutex_);
  awaited_.erase(id);
  std::erase_if(asks_, [&](const kv::PeerAsk& ask) { return ask.id == id; });
  if (offers_.erase(id) == 0) return;
  over_.push_back(id);
  news();
}

// ---- the receiver's side

// What is known of a fetch while it runs.
struct BlockExchange::FetchState {
  const kv::PeerFetch& fetch;
  uint32_t transfer = 0;
  kv::PeerFetched result;
  kv::PerGroup<std::vector<kv::BlockId>> rooms;              // that are left
  std::unordered_map<uint64_t, std::vector<size_t>> wanted;  // indices of names, by their low half
  std::set<std::pair<int, size_t>> landed;                   // group and index
  uint32_t uncredited = 0;
  bool has_answer = false;
  // Of a transfer ahead: what its parts took, each from its Have to its last block.
  std::chrono::nanoseconds took{0};
  Clock::time_point part_begun = {};
};

void BlockExchange::fetch_all() {
  pthread_setname_np(pthread_self(), "pelton-kvfetch");
  for (;;) {
    Queued queued;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !fetches_.empty(); });
      if (stopping_) return;
      queued = std::move(fetches_.front());
      fetches_.pop_front();
    }
    kv::PeerFetched result = carry_out(queued.fetch, queued.until);
    std::lock_guard lock(mutex_);
    known_.erase(queued.fetch.id);
    cancelled_.erase(queued.fetch.id);
    fetched_.push_back(std::move(result));
    news();
  }
}

bool BlockExchange::is_cancelled(int64_t id) {
  std::lock_guard lock(mutex_);
  return cancelled_.contains(id);
}

Result<std::unique_ptr<PeerChannel>> BlockExchange::channel_to(const kv::PeerFetch& fetch,
                                                               Clock::time_point until) {
  {
    std::lock_guard lock(mutex_);
    const auto found = idle_.find(address_of(fetch));
    if (found != idle_.end()) {
      std::unique_ptr<PeerChannel> channel = std::move(found->second);
      idle_.erase(found);
      // The peer has closed it meanwhile, or still says something of a transfer that is over.
      if (!channel->is_readable()) return channel;
    }
  }
  until = std::min(until, Clock::now() + kConnectMax);
  TRY_ASSIGN(std::unique_ptr<PeerChannel> channel,
             PeerChannel::connect({.host = fetch.host, .port = fetch.port},
                                  options_.exchange.keys.front(), until));
  TRY(channel->send(encode(PeerHello{.id = place_.id, .layout = options_.layout}), until));
  TRY_ASSIGN(const std::optional<std::string_view> came, channel->receive(until));
  if (!came) return Error{ErrorCode::kIo, "a peer's connection: no welcome"};
  TRY_ASSIGN(const PeerMessage message, decode_peer_message(*came));
  if (const auto* const refuse = std::get_if<PeerRefuse>(&message)) {
    return Error{ErrorCode::kUnsupported, "the peer refuses: " + refuse->why};
  }
  if (!std::holds_alternative<PeerWelcome>(message)) return protocol("no welcome");
  int64_t largest = 0;
  for (const kv::GroupSpec& group : options_.groups) {
    largest = std::max(largest, group.block_bytes);
  }
  channel->set_record_max(static_cast<size_t>(largest) + kRecordSpare);
  return channel;
}

void BlockExchange::keep(const kv::PeerFetch& fetch, std::unique_ptr<PeerChannel> channel) {
  std::lock_guard lock(mutex_);
  if (idle_.size() >= kIdleMax) idle_.erase(idle_.begin());
  idle_.emplace(address_of(fetch), std::move(channel));
}

kv::PeerFetched BlockExchange::carry_out(const kv::PeerFetch& fetch, Clock::time_point until) {
  Clock::time_point begun = Clock::now();
  FetchState state{.fetch = fetch,
                   .transfer = ++transfers_,
                   .result = {.id = fetch.id},
                   .rooms = fetch.rooms,
                   .wanted = {},
                   .landed = {}};
  kv::PeerFetched& result = state.result;
  for (size_t i = 0; i < fetch.names.size(); ++i) state.wanted[fetch.names[i].low].push_back(i);
  const auto ended = [&](Outcome outcome, std::string why) {
    result.outcome = outcome;
    result.why = std::move(why);
    const Clock::duration all = Clock::now() - begun;
    result.ns = std::chrono::nanoseconds(fetch.ahead ? state.took : all).count();
    return std::move(result);
  };
  const auto failed = [&](const Error& error) {
    if (error.code == ErrorCode::kUnsupported) return ended(Outcome::kRefused, error.message);
    return ended(error.code == ErrorCode::kInvalidArgument ? Outcome::kCorrupt : Outcome::kFailed,
                 error.message);
  };
  if (is_cancelled(fetch.id)) return ended(Outcome::kCancelled, "it was not wanted any more");
  if (begun >= until) return ended(Outcome::kFailed, "others were too slow");
  Result<std::unique_ptr<PeerChannel>> channel = channel_to(fetch, until);
  if (!channel.ok()) return failed(channel.error());
  begun = Clock::now();  // connecting is done once
  const PeerWant want{
      .transfer = state.transfer,
      .limit_ms = static_cast<uint32_t>(std::clamp<int64_t>(fetch.limit_ns / 1'000'000, 1, 60'000)),
      .ticket = fetch.ticket,
      .names = fetch.names,
      .held = fetch.held,
      .ahead = fetch.ahead};
  const Result<void> asked = (*channel)->send(encode(want), until);
  if (!asked.ok()) return failed(asked.error());
  for (;;) {
    if (stopping_ || is_cancelled(fetch.id)) {
      // And the channel goes: what the source has sent already would lie in it.
      const PeerCancel cancel{.transfer = state.transfer};
      (void)(*channel)->send(encode(cancel), Clock::now() + kSlice).ok();
      return ended(Outcome::kCancelled, "it was not wanted any more");
    }
    const auto came = (*channel)->receive(std::min(until, Clock::now() + kSlice));
    if (!came.ok()) return failed(came.error());
    if (!*came && Clock::now() >= until) return ended(Outcome::kFailed, "the peer was too slow");
    if (!*came) continue;
    const Result<bool> goes_on = take_message(state, **came);
    if (!goes_on.ok()) return failed(goes_on.error());
    if (!*goes_on) break;
    // What comes while it is computed may take long, as long as it comes.
    if (fetch.ahead) until = Clock::now() + std::chrono::nanoseconds(fetch.limit_ns);
    if (state.uncredited < kCreditBytes) continue;
    const PeerCredit credit{.transfer = state.transfer, .bytes = state.uncredited};
    state.uncredited = 0;
    if (const auto sent = (*channel)->send(encode(credit), until); !sent.ok()) {
      return failed(sent.error());
    }
  }
  keep(fetch, *std::move(channel));
  if (!result.why.empty()) return ended(Outcome::kRefused, std::move(result.why));
  return ended(result.blocks.empty() ? Outcome::kNothing : Outcome::kDone, {});
}

// Whether more is to come.
Result<bool> BlockExchange::take_message(FetchState& state, std::string_view bytes) {
  TRY_ASSIGN(const PeerMessage message, decode_peer_message(bytes));
  if (const auto* const data = std::get_if<PeerData>(&message)) return land(state, *data, bytes);
  if (const auto* const have = std::get_if<PeerHave>(&message)) {
    if (have->transfer != state.transfer) return true;  // of one that was cancelled
    state.has_answer = true;
    state.part_begun = Clock::now();
    state.result.why = have->refused;
    return true;
  }
  if (const auto* const done = std::get_if<PeerDone>(&message)) {
    return done->transfer != state.transfer;
  }
  return protocol("a message that no source sends");
}

Result<bool> BlockExchange::land(FetchState& state, const PeerData& data,
                                 std::string_view message) {
  if (data.transfer != state.transfer) return true;  // late: of one that was cancelled
  if (!state.has_answer) return protocol("a block before the answer");
  const int group = data.group;
  if (group >= options_.groups.size()) return protocol("a block of no KV group");
  if (std::cmp_not_equal(data.block.size(), options_.groups[group].block_bytes)) {
    return protocol("a block of another size");
  }
  if (!is_whole(data, message)) return protocol("a block with a wrong sum");
  const auto found = state.wanted.find(data.name.low);
  if (found == state.wanted.end()) return protocol("a block that nobody asked for");
  for (const size_t index : found->second) {
    if (state.fetch.names[index] != data.name || state.fetch.held[group][index]) continue;
    if (!state.landed.emplace(group, index).second) break;
    std::vector<kv::BlockId>& rooms = state.rooms[group];
    state.uncredited += static_cast<uint32_t>(data.block.size());
    if (rooms.empty()) return true;  // more than there is room for: computed
    const Clock::time_point now = Clock::now();
    state.took += now - std::exchange(state.part_begun, now);
    memory_.write_block(group, rooms.back(), data.block);
    state.result.blocks.push_back({.group = group, .host = rooms.back(), .name = data.name});
    state.result.bytes += std::ssize(data.block);
    rooms.pop_back();
    return true;
  }
  return protocol("a block twice, or one that nobody asked for");
}

}  // namespace pelton::kv_transfer
