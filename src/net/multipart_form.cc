#include "net/multipart_form.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "net/http_message.h"

namespace pelton::net {
namespace {

constexpr size_t kBoundaryBytesMax = 70;  // RFC 2046, 5.1.1

Error malformed(std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("the form's body is malformed: {}", what), ""};
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The parameter `name` of `value; a=b; c="d \" e"`; none if it is absent or cannot be read.
// Browsers write %22 for a quote within, others \".
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at < header.size()) {
    const size_t equals = header.find('=', ++at);
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = trimmed(header.substr(at, equals - at));
    std::string value;
    at = equals + 1;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        value += header[at];
      }
      if (at == header.size()) return std::nullopt;
      at = header.find(';', at);
    } else {
      const size_t end = std::min(header.find(';', at), header.size());
      value = trimmed(header.substr(at, end - at));
      at = end;
    }
    if (equals_without_case(key, name)) return value;
  }
  return std::nullopt;
}

// The header of a part: of its lines only the disposition means anything here.
Result<FormPart> read_header(std::string_view header) {
  FormPart part;
  bool has_name = false;
  while (!header.empty()) {
    const size_t end = std::min(header.find("\r\n"), header.size());
    const std::string_view line = header.substr(0, end);
    header.remove_prefix(std::min(end + 2, header.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return malformed("a line of a part's header has no colon");
    if (!equals_without_case(line.substr(0, colon), "Content-Disposition")) continue;
    const std::string_view value = line.substr(colon + 1);
    const std::string_view kind = trimmed(value.substr(0, value.find(';')));
    if (!equals_without_case(kind, "form-data")) return malformed("a part is not form-data");
    std::optional<std::string> name = parameter(value, "name");
    if (!name) return malformed("a part has no name");
    part.name = *std::move(name);
    part.file_name = parameter(value, "filename");
    has_name = true;
  }
  if (!has_name) return malformed("a part has no Content-Disposition");
  return part;
}

}  // namespace

bool is_form(std::string_view content_type) {
  return equals_without_case(trimmed(content_type.substr(0, content_type.find(';'))),
                             "multipart/form-data");
}

Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  if (!is_form(content_type)) return malformed("its Content-Type is not multipart/form-data");
  const std::optional<std::string> boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kBoundaryBytesMax) {
    return malformed("its Content-Type has no boundary of 1 to 70 characters");
  }
  const std::string delimiter = "\r\n--" + *boundary;
  // The first delimiter may begin the body, or follow lines that mean nothing.
  std::string_view rest = body;
  if (rest.starts_with(std::string_view(delimiter).substr(2))) {
    rest.remove_prefix(delimiter.size() - 2);
  } else {
    const size_t first = rest.find(delimiter);
    if (first == std::string_view::npos) return malformed("its boundary does not occur");
    rest.remove_prefix(first + delimiter.size());
  }
  std::vector<FormPart> parts;
  while (!rest.starts_with("--")) {
    if (parts.size() == kFormPartsMax) {
      return malformed(fmt::format("it has more than {} parts", kFormPartsMax));
    }
    const size_t line_end = rest.find("\r\n");
    if (line_end == std::string_view::npos || !trimmed(rest.substr(0, line_end)).empty()) {
      return malformed("a boundary is not a line of its own");
    }
    rest.remove_prefix(line_end + 2);
    const size_t header_end = rest.substr(0, kFormPartHeaderBytesMax).find("\r\n\r\n");
    if (header_end == std::string_view::npos) {
      return malformed(
          fmt::format("a part's header does not end within {} bytes", kFormPartHeaderBytesMax));
    }
    TRY_ASSIGN(FormPart part, read_header(rest.substr(0, header_end)));
    // An empty content's delimiter may begin with the line end of the header's last.
    rest.remove_prefix(header_end + 2);
    const size_t end = rest.find(delimiter);
    if (end == std::string_view::npos) return malformed("the last part does not end");
    part.content = end == 0 ? std::string_view() : rest.substr(2, end - 2);
    parts.push_back(std::move(part));
    rest.remove_prefix(end + delimiter.size());
  }
  return parts;
}

}  // namespace pelton::net
