// /v1/files: what batches read and write. Only its owner finds one.
#include <charconv>
#include <cstdio>
#include <istream>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "net/multipart_form.h"
#include "server/batch_objects.h"
#include "server/batches.h"
#include "server/endpoints.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

constexpr std::string_view kPrefix = "/v1/files/";
constexpr int64_t kListMax = 10'000;
constexpr size_t kNameBytesMax = 512;
constexpr int64_t kAgeMin = 3600;
constexpr int64_t kAgeMax = 2'592'000;

Error bad_form(std::string_view field, std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::string(field)};
}

// A form's fields; the content lies in the body.
struct Upload {
  std::string name;
  std::optional<std::string_view> content;
  std::string purpose;
  int64_t age_s = 0;  // 0: it stays
};

Result<void> read_part(const net::FormPart& part, Upload& upload) {
  if (part.name == "file") {
    upload.content = part.content;
    upload.name = part.file_name.value_or("file");
    if (upload.name.empty() || upload.name.size() > kNameBytesMax) {
      return bad_form("file", fmt::format("'file' has a name of 1 to {} bytes", kNameBytesMax));
    }
  } else if (part.name == "purpose") {
    upload.purpose = part.content;
  } else if (part.name == "expires_after[anchor]") {
    if (part.content != "created_at") {
      return bad_form("expires_after.anchor", "'expires_after[anchor]' must be 'created_at'");
    }
  } else if (part.name == "expires_after[seconds]") {
    const char* const end = part.content.data() + part.content.size();
    const auto [last, error] = std::from_chars(part.content.data(), end, upload.age_s);
    if (error != std::errc() || last != end || upload.age_s < kAgeMin || upload.age_s > kAgeMax) {
      return bad_form("expires_after.seconds",
                      fmt::format("'expires_after[seconds]' must be a whole number from {} to {}",
                                  kAgeMin, kAgeMax));
    }
  } else {
    return bad_form(part.name.substr(0, 64),
                    fmt::format("there is no field '{}' in this form", part.name.substr(0, 64)));
  }
  return {};
}

Result<Upload> read_upload(const net::HttpRequest& request) {
  TRY_ASSIGN(const std::vector<net::FormPart> parts,
             net::parse_form(request.headers.get("Content-Type"), request.body));
  Upload upload;
  for (const net::FormPart& part : parts) TRY(read_part(part, upload));
  if (!upload.content) return bad_form("file", "'file' is missing");
  if (upload.content->empty()) return bad_form("file", "'file' is empty");
  if (upload.purpose != "batch") {
    return bad_form("purpose", "'purpose' must be 'batch': files are for batches here");
  }
  return upload;
}

BatchReply add_file(Batches& batches, const Call& call) {
  const Result<Upload> upload = read_upload(call.request);
  if (!upload.ok()) return batch_error(upload.error());
  const int64_t now = batches.store().now_s();
  Result<store::StoredFile> added =
      batches.store().add_file({.id = batches.make_id("file-"),
                                .owner = call.tenant,
                                .name = upload->name,
                                .purpose = upload->purpose,
                                .created_at = now,
                                .expires_at = upload->age_s == 0 ? 0 : now + upload->age_s},
                               *upload->content);
  if (!added.ok()) return batch_error(added.error());
  return json_reply(file_body(*added));
}

// Sends a content piece by piece: read on the batches' thread, written on the call's, the next one
// when the last is out.
class ContentSender : public std::enable_shared_from_this<ContentSender> {
 public:
  ContentSender(Call call, Batches& batches, std::unique_ptr<std::istream> file)
      : call_(std::move(call)), batches_(batches), file_(std::move(file)) {}

  // On the call's thread.
  void start() {
    call_.exchange->on_closed([self = shared_from_this()] { self->over_ = true; });
    call_.exchange->on_drained([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->ask();
    });
    net::HttpHeaders headers = call_.headers;
    headers.add("Content-Type", "application/octet-stream");
    call_.exchange->start_stream(200, std::move(headers));
    ask();
  }

 private:
  static constexpr size_t kPieceBytes = size_t{256} << 10;

  void ask() {
    if (over_ || std::exchange(reading_, true)) return;
    batches_.post([self = shared_from_this()]() mutable {
      const auto piece = std::make_shared<std::string>(kPieceBytes, '\0');
      self->file_->read(piece->data(), static_cast<std::streamsize>(piece->size()));
      piece->resize(static_cast<size_t>(self->file_->gcount()));
      const bool is_bad = self->file_->bad();
      const std::shared_ptr<net::Exchange> exchange = self->call_.exchange;
      exchange->post([self = std::move(self), piece, is_bad]() mutable {
        const std::shared_ptr<ContentSender> alive = std::move(self);
        // What cannot be read is no end: the client sees that something is missing.
        if (is_bad) return alive->break_off();
        alive->write(*piece);
      });
    });
  }

  void write(const std::string& piece) {
    reading_ = false;
    if (over_) return;
    call_.note_written(piece.size());
    if (!piece.empty()) call_.exchange->write(piece);
    if (piece.size() == kPieceBytes) {
      if (call_.exchange->queued_bytes() == 0) ask();
      return;
    }
    over_ = true;
    call_.note_answered(200);
    call_.exchange->finish();
  }

  // Its exchange is dropped with it, once nothing there keeps it alive.
  void break_off() {
    over_ = true;
    call_.exchange->on_closed([] {});
  }

  Call call_;
  Batches& batches_;
  const std::unique_ptr<std::istream>
      file_;  // of whoever has `reading_`: the batches' thread, or the call's
  bool reading_ = false;
  bool over_ = false;
};

// The store is asked on the batches' thread; the content is sent on the call's.
void send_content(Call call, Services& services, const std::string& id) {
  Batches* const batches = services.batches;
  batches->post([held = std::make_shared<Call>(std::move(call)), batches, id]() mutable {
    const Result<store::StoredFile> found =
        batches->store().find_file({.owner = held->tenant, .id = id});
    const auto refused = std::make_shared<std::optional<api::ApiError>>();
    const auto content = std::make_shared<std::unique_ptr<std::istream>>();
    if (!found.ok()) *refused = batch_error(found.error());
    if (found.ok()) {
      auto opened = batches->store().open_content({.owner = held->tenant, .id = id});
      if (opened.ok()) *content = *std::move(opened);
      if (!opened.ok()) *refused = batch_error(opened.error());
    }
    const std::shared_ptr<net::Exchange> exchange = held->exchange;
    exchange->post([held = std::move(held), batches, refused, content]() mutable {
      const std::shared_ptr<Call> asked = std::move(held);
      if (*refused) return asked->send(**refused);
      std::make_shared<ContentSender>(std::move(*asked), *batches, std::move(*content))->start();
    });
  });
}

}  // namespace

void upload_file(Call call, Services& services) {
  answer_on_batches_thread(std::move(call), services, add_file);
}

void list_files(Call call, Services& services) {
  answer_on_batches_thread(
      std::move(call), services, [](Batches& batches, const Call& asked) -> BatchReply {
        const Result<ListQuery> query = read_list_query(asked.request.query, kListMax, kListMax);
        if (!query.ok()) return batch_error(query.error());
        Result<std::vector<store::StoredFile>> files =
            batches.store().list_files({.owner = asked.tenant,
                                        .purpose = query->purpose,
                                        .after = query->after,
                                        .limit = query->limit + 1,
                                        .ascending = query->ascending});
        if (!files.ok()) return batch_error(files.error());
        return json_reply(file_list_body(*std::move(files), query->limit));
      });
}

void get_file(Call call, Services& services) {
  const BatchTarget target = batch_target(call.request.path, kPrefix);
  if (services.batches == nullptr) return call.send(batches_off());
  if (target.action == "/content") return send_content(std::move(call), services, target.id);
  if (!target.action.empty()) {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  answer_on_batches_thread(std::move(call), services,
                           [id = target.id](Batches& batches, const Call& asked) -> BatchReply {
                             const Result<store::StoredFile> found =
                                 batches.store().find_file({.owner = asked.tenant, .id = id});
                             if (!found.ok()) return batch_error(found.error());
                             return json_reply(file_body(*found));
                           });
}

void delete_file(Call call, Services& services) {
  const BatchTarget target = batch_target(call.request.path, kPrefix);
  if (!target.action.empty()) {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  answer_on_batches_thread(std::move(call), services,
                           [id = target.id](Batches& batches, const Call& asked) -> BatchReply {
                             const Result<void> removed =
                                 batches.store().remove_file({.owner = asked.tenant, .id = id});
                             if (!removed.ok()) return batch_error(removed.error());
                             return json_reply(deleted_file_body(id));
                           });
}

}  // namespace pelton::server
