#include "eval/language.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace pelton::eval {
namespace {

enum class Script {
  kNone,
  kLatin,
  kGreek,
  kCyrillic,
  kHebrew,
  kArabic,
  kDevanagari,
  kBengali,
  kGurmukhi,
  kGujarati,
  kTamil,
  kTelugu,
  kKannada,
  kMalayalam,
  kThai,
  kHangul,
  kKana,
  kHan,
};

struct Range {
  uint32_t first;
  uint32_t last;
  Script script;
};
// Characters of words, by Unicode's blocks.
constexpr std::array<Range, 22> kRanges = {{
    {'A', 'Z', Script::kLatin},          {'a', 'z', Script::kLatin},
    {0xC0, 0x24F, Script::kLatin},       {0x1E00, 0x1EFF, Script::kLatin},
    {0x370, 0x3FF, Script::kGreek},      {0x400, 0x52F, Script::kCyrillic},
    {0x591, 0x5F4, Script::kHebrew},     {0x620, 0x6D3, Script::kArabic},
    {0x900, 0x963, Script::kDevanagari}, {0x980, 0x9FE, Script::kBengali},
    {0xA01, 0xA76, Script::kGurmukhi},   {0xA81, 0xAFF, Script::kGujarati},
    {0xB82, 0xBFA, Script::kTamil},      {0xC00, 0xC7F, Script::kTelugu},
    {0xC80, 0xCFF, Script::kKannada},    {0xD00, 0xD7F, Script::kMalayalam},
    {0xE01, 0xE5B, Script::kThai},       {0x1100, 0x11FF, Script::kHangul},
    {0xAC00, 0xD7A3, Script::kHangul},   {0x3041, 0x30FF, Script::kKana},
    {0x3400, 0x4DBF, Script::kHan},      {0x4E00, 0x9FFF, Script::kHan},
}};

Script script_of(uint32_t code_point) {
  for (const Range& range : kRanges) {
    if (code_point >= range.first && code_point <= range.last) return range.script;
  }
  return Script::kNone;
}

struct Language {
  std::string_view code;
  Script script;
  std::string_view words;    // the commonest, with spaces around each
  std::string_view letters;  // that no other language of the script has in this list
};
// Without words: alone in its script.
constexpr Language kLanguages[] = {
    {"ar", Script::kArabic, " في من على إلى أن التي الذي هذا هذه كان لا ما مع عن أو و ", "ةىأإ"},
    {"bg", Script::kCyrillic, " и на да се за от в не са с ще като това е по до който ", ""},
    {"bn", Script::kBengali, "", ""},
    {"cs", Script::kLatin, " a se v na je že s z do o k ve pro ale jako jsem by byl jsou které ",
     "ěřů"},
    {"da", Script::kLatin, " og i at det er en til af på som med for den ikke de har jeg et blev ",
     ""},
    {"de", Script::kLatin,
     " der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an "
     "er dass sie wird bei ich wir wie oder aber sind war haben wo was ",
     "ßü"},
    {"el", Script::kGreek, "", ""},
    {"en", Script::kLatin,
     " the and of to in is that it for you was with on are as be this have from or not by but what "
     "all we when your can there which their if will one about how up they he she his her my i a ",
     ""},
    {"es", Script::kLatin,
     " de la que el en y los del se las por un para con no una su al lo como más pero sus le ya "
     "este sí porque esta cuando muy sin sobre también me hasta hay donde quien desde todo es "
     "está ",
     "ñ¿¡"},
    {"fa", Script::kArabic, " و در به از که این را با است برای آن یک می خود تا ها شد هم ", "پچژگ"},
    {"fi", Script::kLatin,
     " ja on ei se että oli hän mutta ovat kun niin kuin myös joka tai jos sen voi ole mukaan sekä "
     "vain tämä minä sinä olla ",
     ""},
    {"fr", Script::kLatin,
     " de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il "
     "sont aux avec son cette ou elle mais nous vous je être fait ",
     "œ"},
    {"gu", Script::kGujarati, "", ""},
    {"he", Script::kHebrew, "", ""},
    {"hi", Script::kDevanagari, " है के का की में और से को हैं यह पर नहीं एक भी ने कि था हो इस ", ""},
    {"id", Script::kLatin,
     " yang dan di untuk dengan ini itu dari dalam tidak pada adalah akan ke juga oleh karena "
     "saya ",
     ""},
    {"it", Script::kLatin,
     " di e il la che in a per un è del non della una con sono le dei si da al come anche i nel "
     "più "
     "alla ha lo ma gli delle ed questo se o ci mi loro essere stato ",
     "ò"},
    {"ja", Script::kKana, "", ""},
    {"kn", Script::kKannada, "", ""},
    {"ko", Script::kHangul, "", ""},
    {"ml", Script::kMalayalam, "", ""},
    {"mr", Script::kDevanagari, " आहे आणि मध्ये या हे ते नाही आहेत होते तर मी एक हा ही च्या साठी ", "ळ"},
    {"ne", Script::kDevanagari, " छ र मा को छन् हो पनि गर्न लागि यो एक तथा गरेको थियो म ", ""},
    {"nl", Script::kLatin,
     " de het een van en in is dat op te zijn met voor niet aan er om ook als maar bij nog uit "
     "wordt naar hebben deze kan wat ik je ",
     "ĳ"},
    {"pa", Script::kGurmukhi, "", ""},
    {"pl", Script::kLatin,
     " i w na z do nie się to jest że o jak a po co ale za od są czy tak dla przez już tylko jego "
     "jej być może przed która który które oraz ",
     "ąęłńśźż"},
    {"pt", Script::kLatin,
     " de a o que e do da em um para com não uma os no se na por mais as dos como mas foi ao ele "
     "das tem à seu sua ou ser quando muito há nos já está eu também só pelo pela até isso ela é ",
     "ãõ"},
    {"ro", Script::kLatin, " și de în a la nu pe cu o că este un din să mai care pentru sunt dar ",
     "ăășț"},
    {"ru", Script::kCyrillic, " и в не на что с по это как он для но из от я к у же вы за бы ",
     "ыэё"},
    {"sv", Script::kLatin,
     " och att det som en på är av för med den till inte om ett har de jag i ", ""},
    {"sw", Script::kLatin,
     " ya na wa kwa ni katika za la kuwa cha hii kama au si hiyo pia yake watu mimi wewe sana "
     "hivyo "
     "ili lakini kutoka huu huo wao ",
     ""},
    {"ta", Script::kTamil, "", ""},
    {"te", Script::kTelugu, "", ""},
    {"th", Script::kThai, "", ""},
    {"tr", Script::kLatin,
     " ve bir bu için ile da de çok olarak daha gibi olan kadar ne ama değil var ", "ğış"},
    {"uk", Script::kCyrillic, " і в не на що з та як до це для від я у за але він ", "іїєґ"},
    {"ur", Script::kArabic, " کے کی ہے میں اور سے کا کو پر یہ نے ہیں کہ ایک تھا ", "ٹڈڑےںہھ"},
    {"vi", Script::kLatin,
     " và là của có không được cho một các trong người với này để những đã khi từ như đến về cũng ",
     "ăđơưạảấầẩậắằặẹẻẽếềểệỉịọỏốồổộớờởợụủứừửựỳỷỹ"},
};

// A text's letters by their script, and its words in lower case (of Latin letters without accents;
// the lists' words begin with few others).
struct Read {
  std::map<Script, int64_t> letters;
  std::vector<std::string> words;
  std::vector<std::string> marks;  // each code point that is no ASCII letter
};

Read read(std::string_view text) {
  Read found;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) found.words.push_back(std::move(word));
    word.clear();
  };
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    const std::string_view bytes = text.substr(0, step.bytes);
    text.remove_prefix(step.bytes);
    const bool is_valid = step.kind == base::Utf8Step::Kind::kCodePoint;
    const Script script = is_valid ? script_of(step.code_point) : Script::kNone;
    if (bytes.size() > 1 && is_valid) found.marks.emplace_back(bytes);
    if (script == Script::kNone) {
      end_word();
      continue;
    }
    ++found.letters[script];
    const bool is_capital = bytes.size() == 1 && bytes[0] <= 'Z';
    if (is_capital) {
      word += static_cast<char>(bytes[0] - 'A' + 'a');
    } else {
      word += bytes;
    }
  }
  end_word();
  return found;
}

int64_t score_of(const Language& language, const Read& text) {
  int64_t score = 0;
  for (const std::string& word : text.words) {
    if (language.words.find(" " + word + " ") != std::string_view::npos) ++score;
  }
  for (const std::string& mark : text.marks) {
    if (language.letters.find(mark) != std::string_view::npos) ++score;
  }
  return score;
}

}  // namespace

std::string_view likeliest_language(std::string_view text) {
  Read found = read(text);
  // Japanese has Chinese characters between its own.
  if (found.letters[Script::kKana] > 0) {
    found.letters[Script::kKana] += std::exchange(found.letters[Script::kHan], 0);
  }
  const auto most =
      std::ranges::max_element(found.letters, {}, [](const auto& one) { return one.second; });
  if (most->second == 0) return {};
  if (most->first == Script::kHan) return "zh";
  std::string_view best;
  int64_t best_score = 0;
  for (const Language& language : kLanguages) {
    if (language.script != most->first) continue;
    const int64_t score = language.words.empty() ? 1 : score_of(language, found);
    if (score <= best_score) continue;
    best = language.code;
    best_score = score;
  }
  return best;
}

std::vector<std::string_view> known_languages() {
  std::vector<std::string_view> codes = {"zh"};
  for (const Language& language : kLanguages) codes.push_back(language.code);
  std::ranges::sort(codes);
  return codes;
}

}  // namespace pelton::eval
