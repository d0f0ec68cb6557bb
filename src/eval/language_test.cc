#include "eval/language.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

namespace pelton::eval {
namespace {

TEST(Language, each_is_recognised) {
  constexpr std::pair<const char*, const char*> kTexts[] = {
      {"ar", "كان الطقس جميلا في المدينة، ولكن المطر بدأ في المساء."},
      {"bg", "Времето беше хубаво, но вечерта заваля дъжд и ние се прибрахме."},
      {"bn", "আবহাওয়া ভালো ছিল, কিন্তু সন্ধ্যায় বৃষ্টি শুরু হলো।"},
      {"cs", "Počasí bylo hezké, ale večer začalo pršet a my jsme se vrátili domů."},
      {"da",
       "Vejret var godt, men om aftenen begyndte det at regne, og vi gik hjem med en paraply."},
      {"de", "Das Wetter war schön, aber am Abend begann es zu regnen, und wir gingen nach Hause."},
      {"el", "Ο καιρός ήταν ωραίος, αλλά το βράδυ άρχισε να βρέχει."},
      {"en", "The weather was fine, but in the evening it began to rain and we went home."},
      {"es", "El tiempo era bueno, pero por la tarde empezó a llover y nos fuimos a casa."},
      {"fa", "هوا خوب بود، اما در عصر باران گرفت و ما به خانه برگشتیم."},
      {"fi", "Sää oli hyvä, mutta illalla alkoi sataa ja me menimme kotiin, koska oli kylmä."},
      {"fr", "Le temps était beau, mais le soir il a commencé à pleuvoir et nous sommes rentrés."},
      {"gu", "હવામાન સારું હતું, પણ સાંજે વરસાદ શરૂ થયો."},
      {"he", "מזג האוויר היה נעים, אבל בערב התחיל לרדת גשם."},
      {"hi", "मौसम अच्छा था, लेकिन शाम को बारिश शुरू हो गई और हम घर में थे।"},
      {"id", "Cuaca hari ini bagus, tetapi pada malam hari hujan turun dan kami pulang ke rumah."},
      {"it", "Il tempo era bello, ma la sera ha cominciato a piovere e siamo tornati a casa."},
      {"ja", "天気は良かったが、夕方から雨が降り始めた。"},
      {"kn", "ಹವಾಮಾನ ಚೆನ್ನಾಗಿತ್ತು, ಆದರೆ ಸಂಜೆ ಮಳೆ ಶುರುವಾಯಿತು."},
      {"ko", "날씨는 좋았지만 저녁에 비가 오기 시작했다."},
      {"ml", "കാലാവസ്ഥ നല്ലതായിരുന്നു, പക്ഷേ വൈകുന്നേരം മഴ തുടങ്ങി."},
      {"mr", "हवामान चांगले होते, पण संध्याकाळी पाऊस सुरू झाला आणि आम्ही घरी गेलो."},
      {"ne", "मौसम राम्रो थियो, तर साँझ पानी पर्न थाल्यो र हामी घर फर्कियौं।"},
      {"nl", "Het weer was mooi, maar in de avond begon het te regenen en wij gingen naar huis."},
      {"pa", "ਮੌਸਮ ਚੰਗਾ ਸੀ, ਪਰ ਸ਼ਾਮ ਨੂੰ ਮੀਂਹ ਸ਼ੁਰੂ ਹੋ ਗਿਆ।"},
      {"pl", "Pogoda była ładna, ale wieczorem zaczęło padać i wróciliśmy do domu."},
      {"pt", "O tempo estava bom, mas à noite começou a chover e não ficamos na rua."},
      {"ro", "Vremea era frumoasă, dar seara a început să plouă și am plecat acasă."},
      {"ru", "Погода была хорошая, но вечером начался дождь, и мы вернулись домой."},
      {"sv", "Vädret var fint, men på kvällen började det regna och vi gick hem med ett paraply."},
      {"sw",
       "Hali ya hewa ilikuwa nzuri, lakini jioni mvua ilianza na watu walirudi nyumbani kwa "
       "haraka."},
      {"ta", "வானிலை நன்றாக இருந்தது, ஆனால் மாலையில் மழை தொடங்கியது."},
      {"te", "వాతావరణం బాగుంది, కానీ సాయంత్రం వర్షం మొదలైంది."},
      {"th", "อากาศดี แต่ตอนเย็นฝนเริ่มตก"},
      {"tr", "Hava güzeldi ama akşam yağmur başladı ve biz eve döndük, çünkü çok soğuktu."},
      {"uk", "Погода була гарна, але ввечері почався дощ, і ми повернулися додому."},
      {"ur", "موسم اچھا تھا، لیکن شام کو بارش شروع ہو گئی اور ہم گھر میں تھے۔"},
      {"vi", "Thời tiết đẹp nhưng buổi tối trời bắt đầu mưa và chúng tôi về nhà."},
      {"zh", "天气很好，但是晚上开始下雨，我们就回家了。"},
  };
  std::vector<std::string_view> found;
  for (const auto& [code, text] : kTexts) {
    EXPECT_EQ(likeliest_language(text), code) << text;
    found.emplace_back(code);
  }
  std::ranges::sort(found);
  EXPECT_EQ(found, known_languages());
}

TEST(Language, what_is_no_text_is_in_none) {
  for (const char* const text : {"", "42", "...", "\xff\xfe", "Zzyzx"}) {
    EXPECT_EQ(likeliest_language(text), "") << text;
  }
}

}  // namespace
}  // namespace pelton::eval
