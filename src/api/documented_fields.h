// The fields of a request's body that OpenAI, Anthropic, vLLM, SGLang, llama.cpp, TGI, Ollama and
// Cohere document, and what becomes of one that an endpoint does not read: nobody gets a 200 for a
// field that would have changed the answer. A field that is documented nowhere is named in a
// warning, or refused. The same holds for members of the objects in a body (documented_objects.h).
// The rows are in request_fields.cc. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"

namespace pelton::api {

struct DocumentedField {
  enum class Effect {
    kNone,     // on this server's answers: speed, price, caches, what belongs to another field
    kBeside,   // as kNone, but obeyed where it is read: who asks, whose turn it is, what stays
    kStyle,    // the answer stands without it, and a warning says so
    kText,     // as kChanges where text is generated, else as kStyle
    kChanges,  // the answer would be another one: refused where it is not read
    kNever,    // no client's to say: refused whatever it is, but for null
  };
  std::string_view name;
  Effect effect = Effect::kChanges;
  // Values that ask for nothing beside null, false and what is empty: numbers, or words ("auto"),
  // apart by blanks.
  std::string_view neutral;
  // Words apart by blanks: its JSON types, "integer" among them. Empty only where every value is
  // refused or looked at by its reader: what is taken and not read is of its type all the same.
  std::string_view types = {};
  // Of the body's own fields: who documents it ("openai vllm"; "pelton": we alone), and a value
  // that asks for something, as JSON.
  std::string_view servers = {};
  std::string_view example = {};
  // Of one that is taken and not read: the words that it may be, apart by blanks, or a range that
  // either end may lack: "-1.." of a number, "..1024" of a text's bytes. Empty: any of its types.
  std::string_view allowed = {};
};

// By their names.
std::span<const DocumentedField> documented_fields();

// "PATH ignored: WHY", as it may stand in a header.
std::string unread_warning(std::string_view path, std::string_view why);

// At most so many warnings come of one body.
inline constexpr size_t kFieldWarningsMax = 8;

// Which objects stand in a body, and that vectors come of it instead of text.
enum class BodyKind { kText, kChat, kMessages, kResponse, kVectors };
// `body` keeps its reads (Fields::Reads::kKept), and all that its endpoint obeys has been read. A
// field without effect must still be of its type, and one of its allowed values.
void check_unread_fields(const Fields& body, BodyKind kind, UnknownFields unknown,
                         std::vector<std::string>& warnings);

}  // namespace pelton::api
