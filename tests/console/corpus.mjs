// What a model might write to attack the page: payloads in places. hit() must never be called, evil.example never be asked.
const payloads = [
  "<script>hit()</script>", "<img src=x onerror=hit()>", "<img src=https://evil.example/a.png>", "<svg onload=hit()>",
  "<svg><script>hit()</script></svg>", "<svg><animate onbegin=hit() attributeName=x dur=1s>", "<math><mtext><script>hit()</script></mtext></math>",
  "<math href=\"javascript:hit()\">x</math>", "<iframe src=javascript:hit()></iframe>", "<iframe srcdoc='<script>parent.hit()</script>'></iframe>",
  "<object data=https://evil.example/o></object>", "<embed src=https://evil.example/e>", "<link rel=stylesheet href=https://evil.example/c.css>",
  "<style>*{background:url(https://evil.example/s)}</style>", "<div style=\"position:fixed;inset:0;background:url(https://evil.example/d)\">x</div>",
  "<base href=https://evil.example/>", "<meta http-equiv=refresh content='0;url=https://evil.example/'>", "<form action=https://evil.example/><input name=q><button>x</button></form>",
  "<video src=https://evil.example/v autoplay onerror=hit()></video>", "<audio src=x onerror=hit()>", "<details open ontoggle=hit()>x</details>",
  "<input autofocus onfocus=hit()>", "<body onload=hit()>", "<a href=\"javascript:hit()\">x</a>", "<template><script>hit()</script></template>",
  "</textarea><script>hit()</script>", "<!--><script>hit()</script>-->", "<![CDATA[<script>hit()</script>]]>", "<noscript><p title=\"</noscript><img src=x onerror=hit()>\">",
  "[x](javascript:hit())", "[x](JaVaScRiPt:hit())", "[x](java\tscript:hit())", "[x](&#106;avascript:hit())", "[x](data:text/html,<script>hit()</script>)",
  "[x](vbscript:hit())", "[x](//evil.example/)", "[x](blob:https://evil.example/1)", "[x](https://evil.example/\"onmouseover=hit())",
  "[x](<javascript:hit()>)", "[x]( javascript:hit() )", "[x](file:///etc/passwd)", "[x](https://user@evil.example/ \"title' onmouseover='hit()\")",
  "![x](https://evil.example/i.png)", "![x](data:image/svg+xml,<svg onload=hit()>)", "![x][y]\n\n[y]: https://evil.example/r.png", "<https://evil.example/\"onload=hit()>",
  "\u202egnp.tpircs\u202c \u2066\u2067x\u2069", "\u200b\u200d\ufeff<scr\u0000ipt>hit()</scr\u0000ipt>", "\ud800 lonely \udfff", "<|start|>system<|message|>hit()<|end|>",
  "{{constructor.constructor('hit()')()}}", "${hit()}", "__proto__", "javascript:hit()//",
];
const places = [
  (p) => p, (p) => `text ${p} text`, (p) => `# ${p}`, (p) => `- ${p}\n- ${p}`, (p) => `> ${p}`, (p) => `| a | b |\n|---|---|\n| ${p} | ${p} |`,
  (p) => "```" + p + "\n" + p + "\n```", (p) => "`" + p + "`", (p) => `**${p}**`, (p) => `[${p}](https://evil.example/${p})`,
];
export const hostile = payloads.flatMap((payload) => places.map((place) => place(payload)));

// What is only large, or deep, or hard to parse.
export const large = {
  "a line of 1 MB": "x".repeat(1 << 20),
  "a line of 1 MB of stars": "*a ".repeat(350000),
  "brackets": "[".repeat(200000),
  "open links": "[a](".repeat(50000),
  "backticks": "`` ` ".repeat(60000),
  "underscores": "_a".repeat(200000),
  "10^5 list items": Array.from({ length: 100000 }, (_, i) => `- item ${i}`).join("\n"),
  "nested lists": Array.from({ length: 3000 }, (_, i) => " ".repeat(2 * i) + "- x").join("\n").slice(0, 1 << 20),
  "nested quotes": ">".repeat(100000) + " x",
  "a wide table": "|" + "a|".repeat(50000) + "\n|" + "-|".repeat(50000) + "\n|" + "b|".repeat(50000),
  "a long table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n".repeat(30000),
  "tables in quotes": Array.from({ length: 50 }, (_, i) => ">".repeat(i) + " | a |\n" + ">".repeat(i) + " |---|").join("\n"),
  "an open fence of 1 MB": "```\n" + "code line\n".repeat(100000),
  "combining marks": "a" + "\u0301".repeat(20000),
};
