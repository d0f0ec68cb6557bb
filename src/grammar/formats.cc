#include "grammar/formats.h"

#include <array>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "grammar/regex.h"

namespace pelton::grammar {
namespace {

// RFC 3339, and the calendar: 02-29 in leap years only.
std::string date() {
  return "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"
         "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|"
         "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
}

// A leap second is the last of a day in UTC. Of offsets with one, those of whole and half hours.
std::string time_of_day() {
  std::string leap = "23:59:60(?:\\.\\d+)?[Zz]";
  for (int hours = 0; hours < 24; ++hours) {
    leap += fmt::format(
        "|{:02}:59:60(?:\\.\\d+)?\\+{:02}:00|{:02}:29:60(?:\\.\\d+)?\\+{:02}:30"
        "|{:02}:59:60(?:\\.\\d+)?-{:02}:00|{:02}:29:60(?:\\.\\d+)?-{:02}:30",
        (23 + hours) % 24, hours, hours, hours, 23 - hours, hours, 23 - hours, hours);
  }
  return "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?"
         "(?:[Zz]|[+\\-](?:[01]\\d|2[0-3]):[0-5]\\d)|" +
         leap + ")";
}

std::string date_time() {
  return date() + "[Tt]" + time_of_day();
}

// RFC 3339, appendix A: units in order, none left out between two.
std::string duration() {
  const std::string time = "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
  return "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:" + time + ")?|" + time +
         ")";
}

std::string ipv4() {
  const std::string octet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return "(?:" + octet + "\\.){3}" + octet;
}

// RFC 3986's IPv6address; no zone.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = "(?:" + group + ":" + group + "|" + ipv4() + ")";
  std::string out = "(?:(?:" + group + ":){6}" + last;
  for (int before = 0; before <= 7; ++before) {
    const std::string head =
        before == 0 ? "" : fmt::format("(?:(?:{}:){{0,{}}}{})?", group, before - 1, group);
    const std::string tail = before < 5
                                 ? fmt::format("(?:{}:){{{}}}{}", group, 5 - before - 0, last)
                             : before == 5 ? last
                             : before == 6 ? group
                                           : "";
    out += "|" + head + "::" + tail;
  }
  return out + ")";
}

// RFC 1123. A label with -- in places 3 and 4 claims to be something else, A-labels (xn--) among
// them, whose validity is IDNA's tables: none is accepted. A name of 254 characters or more is kept
// out by counting labels: up to 4 of any length, or up to 8 of 30.
constexpr const char* kNoReservedLabel = "(?!(?:[^.]*\\.)*[^.][^.]--)";

std::string host_labels(int rest_max, int more_max) {
  const std::string label =
      fmt::format("[A-Za-z0-9](?:[A-Za-z0-9\\-]{{0,{}}}[A-Za-z0-9])?", rest_max);
  return fmt::format("{}(?:\\.{}){{0,{}}}", label, label, more_max);
}

std::string hostname() {
  const std::string last = "\\.[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,59}[A-Za-z0-9])?";
  return std::string("^") + kNoReservedLabel + "(?:" + host_labels(61, 2) + "(?:" + last + ")?|" +
         host_labels(28, 7) + ")";
}

// RFC 5321: Mailbox, quoted local parts and address literals included.
std::string mailbox(const std::string& beyond_ascii) {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-" + beyond_ascii + "]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~" + beyond_ascii + "]|\\\\[ -~])+\"";
  const std::string letter = "[A-Za-z0-9" + beyond_ascii + "]";
  const std::string label = letter + "(?:[A-Za-z0-9\\-" + beyond_ascii + "]{0,61}" + letter + ")?";
  return "(?:(?=[^@]{1,64}@)" + atom + "(?:\\." + atom + ")*|" + quoted + ")@(?:" + label +
         "(?:\\." + label + ")*|\\[" + ipv4() + "\\]|\\[IPv6:" + ipv6() + "\\])";
}

std::string email() {
  return mailbox("");
}
std::string idn_email() {
  return mailbox("\\u0080-\\u{10FFFF}");
}

// RFC 3986 and, with characters past ASCII, RFC 3987; but something must follow the scheme's colon
// before ? and # (others read "a:" as no URI).
struct UriCharacters {
  std::string beyond_ascii;   // ucschar
  std::string in_query_only;  // iprivate
};

const UriCharacters& iri_characters() {
  static const UriCharacters characters = [] {
    std::string planes = "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF";
    for (int plane = 1; plane <= 13; ++plane) {
      planes += fmt::format("\\u{{{:X}0000}}-\\u{{{:X}FFFD}}", plane, plane);
    }
    planes += "\\u{E1000}-\\u{EFFFD}";
    return UriCharacters{planes, "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"};
  }();
  return characters;
}

class UriRules {
 public:
  explicit UriRules(const UriCharacters& characters) {
    const std::string plain =
        "A-Za-z0-9\\-._~!$&'()*+,;=" + characters.beyond_ascii;  // unreserved, sub-delims
    const std::string percent = "%[0-9A-Fa-f]{2}";
    const auto one_of = [&](const std::string& more) {
      return "(?:[" + plain + more + "]|" + percent + ")";
    };
    const std::string segment = one_of(":@") + "*";
    const std::string path_later = "(?:/" + segment + ")*";
    const std::string path_absolute = "/(?:" + one_of(":@") + "+" + path_later + ")?";
    const std::string host = "(?:\\[(?:" + ipv6() +
                             "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9\\-._~!$&'()*+,;=:]+)\\]|" +
                             one_of("") + "*)";
    const std::string authority =
        "//(?:" + one_of(":") + "*@)?" + host + "(?::[0-9]*)?" + path_later;
    tail_ =
        "(?:\\?" + one_of(":@/?" + characters.in_query_only) + "*)?(?:#" + one_of(":@/?") + "*)?";
    absolute_ = "[A-Za-z][A-Za-z0-9+\\-.]*:(?:" + authority + "|" + path_absolute + "|" +
                one_of(":@") + "+" + path_later + ")";
    relative_ =
        "(?:" + authority + "|" + path_absolute + "|" + one_of("@") + "+" + path_later + "|)";
  }
  std::string uri() const { return absolute_ + tail_; }
  std::string reference() const { return "(?:" + absolute_ + "|" + relative_ + ")" + tail_; }

 private:
  std::string tail_, absolute_, relative_;
};

std::string uri() {
  return UriRules({}).uri();
}
std::string uri_reference() {
  return UriRules({}).reference();
}
std::string iri() {
  return UriRules(iri_characters()).uri();
}
std::string iri_reference() {
  return UriRules(iri_characters()).reference();
}

// RFC 6570, all levels; not the operators that it reserves.
std::string uri_template() {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string character = "(?:[A-Za-z0-9_]|" + percent + ")";
  const std::string variable = character + "(?:\\.?" + character + ")*(?:\\*|:[1-9][0-9]{0,3})?";
  return "(?:[!#$&'(-;=?-\\[\\]_a-z~" + iri_characters().beyond_ascii +
         iri_characters().in_query_only + "]|" + percent + "|\\{[+#./;?&]?" + variable + "(?:," +
         variable + ")*\\})*";
}

std::string uuid() {
  return "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}";
}

// RFC 6901, and its relative kin.
std::string json_pointer() {
  return "(?:/(?:[^~/]|~[01])*)*";
}
std::string relative_json_pointer() {
  return "(?:0|[1-9][0-9]*)(?:#|" + json_pointer() + ")";
}

// ECMA-262 in Unicode mode: groups at most two deep, classes and repeats of the usual forms. The
// language of all regular expressions is not regular.
std::string regex() {
  const std::string escape = "\\\\[\\^$\\\\.*+?()\\[\\]{}|/dDwWsStnrfv]";
  const std::string member =
      "(?:a-z|A-Z|0-9|[^\\[\\]\\\\\\-\\^\\r\\n\\u2028\\u2029]|" + escape + "|\\\\-)";
  const std::string char_class = "\\[\\^?" + member + "+-?\\]";
  // {n,m} with bounds in order: of one digit each, or the second of more digits.
  std::string ordered = "\\d,[1-9]\\d{1,2}";
  for (int least = 0; least < 10; ++least) ordered += fmt::format("|{},[{}-9]", least, least);
  const std::string times = "(?:(?:[*+?]|\\{\\d{1,3},?\\}|\\{(?:" + ordered + ")\\})\\?" + "?)?";
  const std::string plain =
      "(?:[^\\^$\\\\.*+?()\\[\\]{}|/\\r\\n\\u2028\\u2029]|\\.|/|" + escape + "|" + char_class + ")";
  std::string inside = "(?:" + plain + times + ")*";
  for (int depth = 0; depth < 2; ++depth) {
    const std::string alternatives = inside + "(?:\\|" + inside + ")*";
    const std::string group = "\\((?:\\?[:=!])?" + alternatives + "\\)";
    // What looks around takes no repeat: only plain groups do.
    const std::string repeatable = "\\((?:\\?:)?" + alternatives + "\\)";
    inside = "(?:" + plain + times + "|" + repeatable + times + "|" + group + "|\\^|\\$|\\\\[bB])*";
  }
  return inside + "(?:\\|" + inside + ")*";
}

struct Format {
  std::string_view name;
  std::string (*pattern)();
};

constexpr Format kFormats[] = {
    {"date", date},
    {"time", time_of_day},
    {"date-time", date_time},
    {"duration", duration},
    {"email", email},
    {"idn-email", idn_email},
    {"hostname", hostname},
    {"ipv4", ipv4},
    {"ipv6", ipv6},
    {"uri", uri},
    {"uri-reference", uri_reference},
    {"iri", iri},
    {"iri-reference", iri_reference},
    {"uri-template", uri_template},
    {"uuid", uuid},
    {"json-pointer", json_pointer},
    {"relative-json-pointer", relative_json_pointer},
    {"regex", regex},
};

}  // namespace

std::optional<Result<std::shared_ptr<const ByteDfa>>> language_of_format(std::string_view format) {
  // Constants that are made when first asked for: all of them would cost every start some
  // milliseconds.
  static std::array<std::once_flag, std::size(kFormats)> once;
  static std::array<std::shared_ptr<const ByteDfa>, std::size(kFormats)> made;
  for (size_t i = 0; i < std::size(kFormats); ++i) {
    if (kFormats[i].name != format) continue;
    std::call_once(once[i], [i] {
      Result<ByteDfa> dfa =
          compile_regex(kFormats[i].pattern(), {.match = RegexOptions::Match::kWhole});
      CHECK(dfa.ok(), dfa.error().message);
      made[i] = std::make_shared<const ByteDfa>(std::move(dfa).value());
    });
    return made[i];
  }
  if (format == "idn-hostname") {
    return Error{ErrorCode::kUnsupported, "the format idn-hostname is not supported", ""};
  }
  return std::nullopt;
}

}  // namespace pelton::grammar
