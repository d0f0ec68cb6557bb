// The server's API. Addresses are relative to the page, so that a proxy's prefix stays in them.

const kKeyName = "pelton-api-key";

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly retry_after = 0, readonly code = "") {
    super(message);
  }
}

// Of this tab only.
export function api_key(): string {
  return sessionStorage.getItem(kKeyName) ?? "";
}
export function set_api_key(key: string): void {
  if (key) sessionStorage.setItem(kKeyName, key);
  else sessionStorage.removeItem(kKeyName);
}

function headers(body: boolean, more: Record<string, string> = {}): HeadersInit {
  const all = { ...more };
  if (body) all["Content-Type"] = "application/json";
  if (api_key()) all["Authorization"] = "Bearer " + api_key();
  return all;
}

async function check(response: Response): Promise<Response> {
  if (response.ok) return response;
  let message = response.status + " " + response.statusText;
  let code = "";
  try {
    const { error } = await response.json();
    message = error.message ?? message;
    code = String(error.code ?? "");
  } catch {
    // not one of ours
  }
  throw new ApiError(response.status, message, Number(response.headers.get("Retry-After") ?? 0), code);
}

export async function get(path: string): Promise<any> {
  return (await check(await fetch(path, { headers: headers(false), cache: "no-store" }))).json();
}

export async function get_text(path: string): Promise<string> {
  return (await check(await fetch(path, { headers: headers(false), cache: "no-store" }))).text();
}

// Of an operator's pages: the server knows by a cookie who has signed in.
export async function send(method: string, path: string, body?: unknown, more: Record<string, string> = {}): Promise<unknown> {
  return (await check(await fetch(path, { method, headers: headers(body !== undefined, more), body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" }))).json();
}

// A stream of events that goes on for ever, from behind the one that `after` names; each one's data.
// Comes back when it is cut.
export async function follow(path: string, after: number, signal: AbortSignal, on_data: (data: unknown) => void): Promise<void> {
  const response = await check(await fetch(path, {
    headers: { ...headers(false), "Last-Event-ID": String(after) }, signal, cache: "no-store" }));
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop()!;
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (data) on_data(JSON.parse(data.slice(6)));
    }
  }
}

// A text as it is, not as JSON.
export async function send_text(method: string, path: string, text: string, headers: Record<string, string>): Promise<unknown> {
  return (await check(await fetch(path, { method, headers: { ...headers, "Content-Type": "application/toml" }, body: text, cache: "no-store" }))).json();
}

// A text, and its ETag.
export async function get_tagged(path: string): Promise<{ text: string; etag: string }> {
  const response = await check(await fetch(path, { headers: headers(false), cache: "no-store" }));
  return { text: await response.text(), etag: response.headers.get("ETag") ?? "" };
}

// The events of a streamed answer, as they come.
export async function stream(path: string, body: unknown, signal: AbortSignal,
                             on_event: (event: any) => void): Promise<void> {
  const response = await check(await fetch(path, {
    method: "POST", headers: headers(true), body: JSON.stringify(body), signal, cache: "no-store" }));
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop()!;
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (data === undefined) continue;
      if (data === "[DONE]") return;
      on_event(JSON.parse(data));
    }
  }
  throw new ApiError(0, "");
}
