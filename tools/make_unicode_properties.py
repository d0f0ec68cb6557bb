#!/usr/bin/env python3
"""Writes src/grammar/unicode_property_tables.cc: general categories, scripts and some yes-or-no
properties of every code point, for \\p{...} in regular expressions.

From the PCRE2 library of this machine, as make_unicode_tables.py, and Unicode 14 as there.

    tools/make_unicode_properties.py > src/grammar/unicode_property_tables.cc
"""
import sys

from make_unicode_tables import CODE_POINTS, load_pcre2, runs, unicode_version

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Co Cn").split()

# Long and short names, as Unicode's PropertyValueAliases has them.
SCRIPTS = """Adlam Adlm, Ahom Ahom, Anatolian_Hieroglyphs Hluw, Arabic Arab, Armenian Armn, Avestan Avst,
Balinese Bali, Bamum Bamu, Bassa_Vah Bass, Batak Batk, Bengali Beng, Bhaiksuki Bhks, Bopomofo Bopo,
Brahmi Brah, Braille Brai, Buginese Bugi, Buhid Buhd, Canadian_Aboriginal Cans, Carian Cari,
Caucasian_Albanian Aghb, Chakma Cakm, Cham Cham, Cherokee Cher, Chorasmian Chrs, Common Zyyy,
Coptic Copt, Cuneiform Xsux, Cypriot Cprt, Cypro_Minoan Cpmn, Cyrillic Cyrl, Deseret Dsrt,
Devanagari Deva, Dives_Akuru Diak, Dogra Dogr, Duployan Dupl, Egyptian_Hieroglyphs Egyp, Elbasan Elba,
Elymaic Elym, Ethiopic Ethi, Georgian Geor, Glagolitic Glag, Gothic Goth, Grantha Gran, Greek Grek,
Gujarati Gujr, Gunjala_Gondi Gong, Gurmukhi Guru, Han Hani, Hangul Hang, Hanifi_Rohingya Rohg,
Hanunoo Hano, Hatran Hatr, Hebrew Hebr, Hiragana Hira, Imperial_Aramaic Armi, Inherited Zinh,
Inscriptional_Pahlavi Phli, Inscriptional_Parthian Prti, Javanese Java, Kaithi Kthi, Kannada Knda,
Katakana Kana, Kayah_Li Kali, Kharoshthi Khar, Khitan_Small_Script Kits, Khmer Khmr, Khojki Khoj,
Khudawadi Sind, Lao Laoo, Latin Latn, Lepcha Lepc, Limbu Limb, Linear_A Lina, Linear_B Linb,
Lisu Lisu, Lycian Lyci, Lydian Lydi, Mahajani Mahj, Makasar Maka, Malayalam Mlym, Mandaic Mand,
Manichaean Mani, Marchen Marc, Masaram_Gondi Gonm, Medefaidrin Medf, Meetei_Mayek Mtei,
Mende_Kikakui Mend, Meroitic_Cursive Merc, Meroitic_Hieroglyphs Mero, Miao Plrd, Modi Modi,
Mongolian Mong, Mro Mroo, Multani Mult, Myanmar Mymr, Nabataean Nbat, Nandinagari Nand,
New_Tai_Lue Talu, Newa Newa, Nko Nkoo, Nushu Nshu, Nyiakeng_Puachue_Hmong Hmnp, Ogham Ogam,
Ol_Chiki Olck, Old_Hungarian Hung, Old_Italic Ital, Old_North_Arabian Narb, Old_Permic Perm,
Old_Persian Xpeo, Old_Sogdian Sogo, Old_South_Arabian Sarb, Old_Turkic Orkh, Old_Uyghur Ougr,
Oriya Orya, Osage Osge, Osmanya Osma, Pahawh_Hmong Hmng, Palmyrene Palm, Pau_Cin_Hau Pauc,
Phags_Pa Phag, Phoenician Phnx, Psalter_Pahlavi Phlp, Rejang Rjng, Runic Runr, Samaritan Samr,
Saurashtra Saur, Sharada Shrd, Shavian Shaw, Siddham Sidd, SignWriting Sgnw, Sinhala Sinh,
Sogdian Sogd, Sora_Sompeng Sora, Soyombo Soyo, Sundanese Sund, Syloti_Nagri Sylo, Syriac Syrc,
Tagalog Tglg, Tagbanwa Tagb, Tai_Le Tale, Tai_Tham Lana, Tai_Viet Tavt, Takri Takr, Tamil Taml,
Tangsa Tnsa, Tangut Tang, Telugu Telu, Thaana Thaa, Thai Thai, Tibetan Tibt, Tifinagh Tfng,
Tirhuta Tirh, Toto Toto, Ugaritic Ugar, Vai Vaii, Vithkuqi Vith, Wancho Wcho, Warang_Citi Wara,
Yezidi Yezi, Yi Yiii, Zanabazar_Square Zanb"""

BINARY = ["Alphabetic", "Lowercase", "Uppercase", "White_Space", "ID_Start", "ID_Continue",
          "Ideographic", "Emoji", "Emoji_Presentation", "Math", "Dash",
          "Hex_Digit", "Diacritic", "Extended_Pictographic", "Default_Ignorable_Code_Point"]


def ranges(lib, pattern, text, point_at):
    """Code points that `pattern` matches, as ranges without holes (surrogates are holes)."""
    out = []
    for begin, end in runs(lib, pattern, text):
        first, last = point_at[begin], point_at[max(
            at for at in range(max(begin, end - 4), end) if at in point_at)]
        pieces = [(first, last)]
        if first < 0xD800 and last > 0xDFFF:
            pieces = [(first, 0xD7FF), (0xE000, last)]
        for piece in pieces:
            if out and out[-1][1] + 1 == piece[0]:
                out[-1] = (out[-1][0], piece[1])
            else:
                out.append(piece)
    return out


def print_numbers(numbers):
    line = "   "
    for number in numbers:
        word = f" {number},"
        if len(line) + len(word) > 100:
            print(line)
            line = "   "
        line += word
    print(line)


def print_partition(name, labelled, blank):
    """`labelled`: (first, last, label) that do not overlap; what no label covers is `blank`."""
    labelled.sort()
    starts, at = [], 0
    for first, last, label in labelled:
        assert first >= at, (name, first)
        if first > at:
            starts.append((at, blank))
        starts.append((first, label))
        at = last + 1
    if at < CODE_POINTS:
        starts.append((at, blank))
    merged = [s for i, s in enumerate(starts) if i == 0 or starts[i - 1][1] != s[1]]
    print(f"const uint32_t {name}[] = {{  // first code point * 256 + value")
    print_numbers([first * 256 + value for first, value in merged])
    print("};")
    print(f"const size_t {name}Count = {len(merged)};\n")


def main():
    lib = load_pcre2()
    version = unicode_version(lib)
    if not version.startswith("14."):
        sys.exit(f"PCRE2 here knows Unicode {version}; the tables are to be Unicode 14")
    points = [c for c in range(CODE_POINTS) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, points)).encode()
    point_at, offset = {}, 0
    for c in points:
        point_at[offset] = c
        offset += len(chr(c).encode())

    print(f"// Made by tools/make_unicode_properties.py from PCRE2's tables (Unicode {version}).")
    print('#include "grammar/unicode_property_tables.h"\n')
    print("namespace pelton::grammar {\n")
    print("// clang-format off")
    # Surrogates (Cs) are in no text: they count as unassigned.
    unassigned = CATEGORIES.index("Cn")
    print_partition("kCategoryRuns", [
        (first, last, value) for value, name in enumerate(CATEGORIES) if value != unassigned
        for first, last in ranges(lib, r"\p{%s}+" % name, text, point_at)], unassigned)
    scripts = [entry.split() for entry in SCRIPTS.split(",")]
    # [sc=...] is the script itself; PCRE2's plain \p{Greek} would be its extensions.
    labelled = [(first, last, value) for value, (name, _) in enumerate(scripts)
                for first, last in ranges(lib, r"\p{sc=%s}+" % name.replace("_", ""), text, point_at)]
    print_partition("kScriptRuns", labelled, len(scripts))
    print("const ScriptName kScriptNames[] = {")
    for long, short in scripts:
        print(f'    {{"{long}", "{short}"}},')
    print("};")
    print(f"const size_t kScriptNamesCount = {len(scripts)};\n")
    at, spans, bounds = 0, [], []
    for name in BINARY:
        found = ranges(lib, r"\p{%s}+" % name.replace("_", ""), text, point_at)
        spans.append((name, at, at + len(found)))
        at += len(found)
        bounds += [bound for pair in found for bound in pair]
    print("const uint32_t kBinaryRanges[] = {  // first, last, first, last, ...")
    print_numbers(bounds)
    print("};\n")
    print("const BinaryProperty kBinaryProperties[] = {")
    for name, begin, end in spans:
        print(f'    {{"{name}", {begin}, {end}}},')
    print("};")
    print(f"const size_t kBinaryPropertiesCount = {len(spans)};")
    print("// clang-format on\n")
    print("}  // namespace pelton::grammar")
    covered = sum(last - first + 1 for first, last, _ in labelled)
    assigned = sum(last - first + 1 for name in CATEGORIES if name not in ("Cn", "Co")
                   for first, last in ranges(lib, r"\p{%s}+" % name, text, point_at))
    assert covered == assigned, (covered, assigned)  # every script there is has been named


if __name__ == "__main__":
    main()
