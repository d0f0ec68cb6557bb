#include "report/html_page.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "report/plot.h"

namespace pelton::report {
namespace {

// Okabe and Ito's colours, distinguished by nearly everybody, on light and dark.
constexpr std::string_view kStyle = R"(
:root{--ink:#1b1f24;--faint:#667;--grid:#e4e7eb;--back:#fff;--card:#f6f7f9;--warn:#8a4b00;--warnback:#fff3e0}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--faint:#9aa3ad;--grid:#333a42;--back:#14171a;--card:#1e2328;--warn:#ffc77d;--warnback:#3a2a12}}
*{box-sizing:border-box}
body{margin:0;padding:1.2rem;background:var(--back);color:var(--ink);font:16px/1.45 system-ui,"DejaVu Sans",sans-serif}
main{max-width:80rem;margin:auto}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .6rem}
h1,h2,p,li,dd,dt,figcaption,summary,code{overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.scroll pre{white-space:pre;overflow-wrap:normal;width:max-content;min-width:100%}
p.sub{color:var(--faint);margin:.1rem 0 1rem;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.2rem,1fr));gap:.6rem}
.card{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.card b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}.card span{color:var(--faint);font-size:.82rem}
.warn{background:var(--warnback);color:var(--warn);padding:.6rem .8rem;border-radius:.5rem;margin:.6rem 0}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:1rem}
figure{margin:0;background:var(--card);border-radius:.5rem;padding:.7rem}
figcaption{font-weight:600;margin-bottom:.3rem}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--faint);font:12px system-ui,"DejaVu Sans",sans-serif}svg .label{fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{fill:none;stroke:var(--faint)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{stroke:var(--card);stroke-width:1.5}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.85rem;margin-top:.3rem;overflow-wrap:anywhere}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:.2rem;margin-right:.35rem;vertical-align:-.08rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.3rem .8rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child{text-align:left}thead th{color:var(--faint);font-weight:600}
td.worse{color:#d55e00;font-weight:600}td.better{color:#009e73}
td.text{text-align:left;white-space:normal;min-width:13rem}
@media(max-width:600px){body{padding:.7rem}svg text{font-size:15px}figure{padding:.5rem}th,td{padding:.3rem .45rem}td:first-child{white-space:normal;min-width:5rem;overflow-wrap:anywhere}}
dt{font-weight:600;margin-top:.5rem}dd{margin:0;color:var(--faint)}
)";
constexpr std::array<std::string_view, kPageColours> kPalette = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b59a00", "#8c6bb1"};

std::string style() {
  std::string out(kStyle);
  for (size_t i = 0; i < kPalette.size(); ++i) {
    out += fmt::format(".line.s{0}{{stroke:{1}}}.dot.s{0}{{fill:{1}}}i.s{0}{{background:{1}}}\n", i,
                       kPalette[i]);
  }
  return out;
}

}  // namespace

// Nothing may be fetched, not even an icon.
std::string page_begin(const std::string& title) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; img-src data:\"><link rel=\"icon\" href=\"data:,\">";
  out += fmt::format("<title>{}</title><style>{}</style></head><body><main>\n", html_escape(title),
                     style());
  out += fmt::format("<h1>{}</h1>\n", html_escape(title));
  return out;
}

}  // namespace pelton::report
