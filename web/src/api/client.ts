/** Calls of the API, and what the page knows of the connection. */
import { Store } from "../store";
import { session } from "./session";
import type { ProblemDocument } from "./types";

export type Query = Record<string, string | number | boolean | null | undefined | string[]>;

/** Why a call was not answered as requested, in the API's words or, without an answer, in ours. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly document: ProblemDocument | null,
    readonly retryAfterS: number | null,
    message: string,
  ) {
    super(message);
  }

  /** Whether the same call may succeed later without any change. */
  get passes(): boolean {
    return [0, 429, 502, 503, 504].includes(this.status);
  }
}

/** What keeps the page from being up to date; null: nothing. */
export const trouble = new Store<string | null>(null);

const TIMEOUT_MS = 30_000;
const AWAY = "The API does not answer. Trying again.";
/** `..` is the API's root: the page stands at `web/` below it, wherever a proxy puts both. */
const ROOT = "../v1/";

export async function get<T>(
  path: string,
  query: Query = {},
  { patienceMs }: { patienceMs?: number } = {},
): Promise<T> {
  try {
    const found = await call<T>("GET", path, { query, ...(patienceMs ? { patienceMs } : {}) });
    trouble.set(null);
    return found;
  } catch (problem) {
    if (problem instanceof Problem && problem.passes) trouble.set(problem.message);
    throw problem;
  }
}

/** A change. `key` makes it safe to send again: use one for each intention; `token` "" sends none. */
export async function send<T>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  { body, ...more }: { body?: unknown; key?: string; token?: string; patienceMs?: number } = {},
): Promise<T> {
  return call<T>(method, path, { body, ...more });
}

/** A change that is sent even while the page is being left; nobody waits for its answer. */
export function sendLast(method: "DELETE", path: string, token: string): void {
  const headers = { Authorization: `Bearer ${token}` };
  fetch(ROOT + path, { method, headers, credentials: "omit", keepalive: true }).catch(() => {});
}

/** A call whose answer comes piece by piece, for as long as it likes. */
export async function ask(path: string, signal: AbortSignal): Promise<Response> {
  const token = session.token;
  let answer: Response;
  try {
    answer = await fetch(ROOT + path, {
      headers: { Accept: "text/event-stream", Authorization: `Bearer ${token}` },
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      signal,
    });
  } catch {
    throw new Problem(0, null, null, AWAY);
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && token === session.token) session.end();
  throw problemOf(answer, await answer.json().catch(() => null));
}

async function call<T>(
  method: string,
  path: string,
  given: { query?: Query; body?: unknown; key?: string; token?: string; patienceMs?: number },
): Promise<T> {
  const token = given.token ?? session.token;
  const headers: Record<string, string> = { Accept: "application/json" };
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (given.body !== undefined) headers["Content-Type"] = "application/json";
  if (given.key) headers["Idempotency-Key"] = given.key;
  let answer: Response;
  try {
    answer = await fetch(ROOT + path + queryText(given.query ?? {}), {
      method,
      headers,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(given.patienceMs ?? TIMEOUT_MS),
      ...(given.body !== undefined ? { body: JSON.stringify(given.body) } : {}),
    });
  } catch {
    throw new Problem(0, null, null, AWAY);
  }
  if (answer.status === 204) return undefined as T;
  let text: string;
  try {
    text = await answer.text();
  } catch {
    throw new Problem(0, null, null, AWAY); // it broke off: half an answer is none
  }
  const content = parsedOrNull(text);
  if (answer.ok) {
    if (content === null && text) throw new Problem(0, null, null, AWAY);
    return content as T;
  }
  if (answer.status === 401 && token && token === session.token) session.end();
  throw problemOf(answer, content);
}

/** Send a file as it is. Not `fetch`, which does not tell how much has been sent. */
export function upload(path: string, file: Blob, key: string, tell: (bytes: number) => void): Promise<unknown> {
  return new Promise((done, refuse) => {
    const token = session.token;
    const call = new XMLHttpRequest();
    call.open("POST", ROOT + path);
    call.setRequestHeader("Authorization", `Bearer ${token}`);
    call.setRequestHeader("Content-Type", "application/octet-stream");
    call.setRequestHeader("Idempotency-Key", key);
    call.upload.onprogress = (event) => tell(event.loaded);
    call.onerror = () => refuse(new Problem(0, null, null, AWAY));
    call.onload = () => {
      const answer = new Response(call.responseText, { status: call.status });
      const content: unknown = parsedOrNull(call.responseText);
      if (answer.status === 401 && token === session.token) session.end();
      if (answer.ok) done(content);
      else refuse(problemOf(answer, content));
    };
    call.send(file);
  });
}

function parsedOrNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function problemOf(answer: Response, content: unknown): Problem {
  const parsed = content as ProblemDocument | null;
  const waits = Number(answer.headers.get("Retry-After")) || null;
  const after = waits ? ` Trying again in ${waits} s.` : "";
  if (answer.status === 429) {
    return new Problem(429, parsed, waits, `Too many calls at once.${after}`);
  }
  if ([502, 503].includes(answer.status)) {
    const why = parsed?.detail ?? "the API is not ready";
    return new Problem(answer.status, parsed, waits, `fuga is away: ${why}.${after}`);
  }
  const why = parsed?.detail ?? `The API answered ${answer.status}.`;
  return new Problem(answer.status, parsed, waits, why);
}

export function queryText(query: Query): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) words.append(name, String(each));
  }
  return words.size ? `?${words}` : "";
}

/** A key for one intention: 128 random bits. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `web-${[...bytes].map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}
