// The part of gateway::Relay for images and videos, which workers of another kind make: their bytes
// are passed on as they come, so that none is ever held whole here; and what a worker says of a
// video says where it is, and how far.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/relay.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kContentQuietTime{60'000};

}  // namespace

void Relay::bound_media_call(net::HttpCall& call) const {
  const Request::Media& media = *request_.media;
  call.head_time_max = media.time_max;
  call.quiet_time_max = media.time_max;
  // What is made already takes as long as its client reads.
  if (media.kind == MediaKind::kVideoContent) {
    call.quiet_time_max = kContentQuietTime;
    return;
  }
  call.whole_time_max = media.time_max;
  // A job that is begun twice is made twice, and nobody knows of one of them.
  call.repeatable = media.kind != MediaKind::kVideo;
}

bool Relay::passes_media(int status, const net::HttpHeaders& headers) const {
  if (!request_.media) return false;
  const MediaKind kind = request_.media->kind;
  return (kind == MediaKind::kImage || kind == MediaKind::kVideoContent) &&
         MediaAnswer::is_one(status, headers);
}

void Relay::begin_media(const net::HttpHeaders& headers) {
  media_.emplace(request_.media->result_bytes_max);
  const Result<void> begun = media_->begin(headers);
  if (begun.ok()) return;
  media_.reset();  // nothing of it has been passed on
  end_attempt(Failure::kUnreadable, begun.error().message);
}

void Relay::on_media_bytes(const std::string& bytes) {
  const Result<void> sound = media_->push(bytes);
  if (!sound.ok()) return end_attempt(Failure::kUnreadable, sound.error().message);
  if (bytes.empty()) return;
  note_progress();
  note_harmless();
  if (!std::exchange(streaming_, true)) exchange_->start_stream(head_->status, head_headers());
  early_ = false;
  services_.counters.media.result_bytes += std::ssize(bytes);
  exchange_->write(bytes);
  pause_if_behind();
}

void Relay::on_media_end() {
  const Result<void> whole = media_->finish();
  if (!whole.ok()) return end_attempt(Failure::kUnreadable, whole.error().message);
  finish();
}

void Relay::note_made() {
  if (!request_.media || request_.media->kind != MediaKind::kImage || media_work() == nullptr) {
    return;
  }
  ++services_.counters.media.images;
  services_.counters.media.units += media_work()->units;
  services_.fleet.note_made(assignment_,
                            static_cast<double>(services_.clock.now_ns() - attempted_ns_) * 1e-9);
}

// Of a whole answer about a video: it has begun, has come so far, or is gone.
bool Relay::note_video(const net::HttpResponse& answer) {
  const bool is_success = answer.status >= 200 && answer.status < 300;
  const bool is_about_video =
      request_.media->kind == MediaKind::kVideo || request_.media->kind == MediaKind::kVideoJob;
  if (!is_success || !is_about_video) return true;
  if (request_.http.method == "DELETE") {
    services_.fleet.forget_video(assignment_, video_of_path(request_.http.path));
    return true;
  }
  const std::optional<VideoState> state = video_state(answer.body);
  if (request_.media->kind == MediaKind::kVideoJob) {
    if (state) services_.fleet.note_video(assignment_, *state);
    return true;
  }
  if (!state) {
    end_attempt(Failure::kUnreadable, "it began a video without an id");
    return false;
  }
  services_.homes.note(state->id, {.pool = request_.pool,
                                   .worker = assignment_.worker,
                                   .serial = assignment_.serial,
                                   .tenant = request_.principal.tenant});
  ++services_.counters.media.videos;
  if (media_work() == nullptr) return true;
  services_.counters.media.units += media_work()->units;
  if (state->phase == VideoState::Phase::kUnderWay) {
    services_.fleet.begin_video(assignment_, state->id);
  }
  return true;
}

bool Relay::may_have_begun_video(Failure failure) const {
  const bool is_lost = failure == Failure::kLost || failure == Failure::kUnreadable ||
                       failure == Failure::kSilent || failure == Failure::kDown;
  return is_lost && request_.media && request_.media->kind == MediaKind::kVideo;
}

// Whoever takes so long would take it again elsewhere, and its client has waited long enough.
void Relay::end_late() {
  running_ = false;
  services_.fleet.note_outcome(assignment_, Fleet::Outcome::kFailed);
  if (std::exchange(is_trial_, false)) services_.quarantine.end_trial(assignment_.incarnation);
  ++services_.counters.media.late;
  give_up({.status = 504,
           .message = fmt::format("the worker did not answer within {} seconds (time_max)",
                                  static_cast<double>(request_.media->time_max.count()) / 1000),
           .type = "server_error",
           .param = {},
           .code = "worker_timeout"});
}

}  // namespace pelton::gateway
