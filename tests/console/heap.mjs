// How a page's JavaScript heap grows while its stream is open: figures of docs/performance.md. Exit code 1 where it is by more than 5 MB, or a page
// has said an error.
//
// usage: heap.mjs MINUTES URL...   URLs of pages as http://127.0.0.1:8091/console#fleet; run in run.sh's work folder
import { open_browser, open_page } from "./browser.mjs";

const kGrowthMax = 5e6;
const minutes = Number(process.argv[2]);
const browser = await open_browser();
const pages = await Promise.all(process.argv.slice(3).map(async (url) => {
  const { page, seen, context } = await open_page(browser, url);
  const client = await context.newCDPSession(page);
  return { url, page, seen, heap: async () => {
    await client.send("HeapProfiler.collectGarbage");
    return (await client.send("Runtime.getHeapUsage")).usedSize;
  } };
}));
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
await rest(60_000);
const first = await Promise.all(pages.map((one) => one.heap()));
await rest(minutes * 60_000);
for (const [i, one] of pages.entries()) {
  const last = await one.heap();
  console.log(`${one.url}: ${(first[i] / 1e6).toFixed(2)} MB a minute after it was opened, ${(last / 1e6).toFixed(2)} MB ${minutes} minutes later; ${one.seen.errors.length} errors`);
  if (last - first[i] > kGrowthMax || one.seen.errors.length > 0) process.exitCode = 1;
}
await browser.close();
