/** Values as people read them. */
const UNITS: readonly [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

export function duration(seconds: number): string {
  for (const [length, unit] of UNITS) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return "0 s";
}

export function age(at: string | null | undefined): string {
  return at ? duration(Math.max(0, (Date.now() - Date.parse(at)) / 1000)) : "-";
}

/** A time of the reader's clock with the offset of its zone: abbreviations such as CST mean several zones. */
export const moment = (at: string | null | undefined): string =>
  at ? `${new Date(at).toLocaleString()} ${offsetAt(at)}` : "-";

const offsetAt = (at: string): string =>
  new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" })
    .formatToParts(new Date(at))
    .find((part) => part.type === "timeZoneName")!.value;

/** The zone of the reader's clock, as inputs of times name it. */
export const readersZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** What a `datetime-local` input means on the reader's clock; a problem where the clock shows it never or twice. */
export function typedMoment(typed: string): { at: string | null; problem: string | null } {
  if (!typed) return { at: null, problem: null };
  const utc = Date.parse(`${typed}Z`);
  const offsets = [-86_400_000, 86_400_000].map((away) => new Date(utc + away).getTimezoneOffset());
  const instants = [...new Set(offsets.map((minutes) => utc + minutes * 60_000))].sort((a, b) => a - b);
  const shown = instants.filter((each) => each - new Date(each).getTimezoneOffset() * 60_000 === utc);
  if (shown.length === 1) return { at: new Date(shown[0]!).toISOString(), problem: null };
  const readings = instants.map((each) => moment(new Date(each).toISOString())).join(" or ");
  const why = shown.length ? "comes twice" : "does not exist";
  return { at: null, problem: `${typed.replace("T", " ")} ${why} in ${readersZone()}: it may be ${readings}` };
}

export const percent = (share: number): string => `${decimals(share * 100, 1)} %`;

/** A number with so many decimal places; one digit of what would round to zero. */
export function decimals(value: number, places: number): string {
  const text = value.toFixed(places);
  return Number(text) || !value ? text : String(Number(value.toPrecision(1)));
}

export function amount(resource: string, value: number): string {
  if (resource.endsWith("_mib")) {
    return value >= 1024 ? `${round(value / 1024)} GiB` : `${value} MiB`;
  }
  if (resource.endsWith("_gib")) return value >= 1024 ? `${round(value / 1024)} TiB` : `${value} GiB`;
  return String(value);
}

export const noun = (resource: string): string => readable(resource.replace(/_(mib|gib|s)$/, ""));

/** `partly_placed` is two words. */
export const readable = (word: string): string => word.replaceAll("_", " ");

/** The name of a resource with its unit: `memory (MiB)`. */
export function unitName(resource: string): string {
  const unit = /_(mib|gib)$/.exec(resource)?.[1];
  return unit ? `${noun(resource)} (${unit === "mib" ? "MiB" : "GiB"})` : noun(resource);
}

/** The end of an id, which differs most. */
export const shortId = (id: string): string => id.slice(-8);

const round = (value: number): string => String(Math.round(value * 10) / 10);

export const count = (many: number, one: string, more = `${one}s`): string =>
  `${many} ${many === 1 ? one : more}`;

/** `4`, or `4..20` with what an elastic request borrows. */
export const range = (request: { count: number; max_count?: number | null }): string =>
  request.max_count ? `${request.count}..${request.max_count}` : String(request.count);

/** A word as a shell takes it. */
export const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** What a guest wrote, without what commands a terminal or turns the direction of writing. */
export function plain(text: string): string {
  return text
    .replace(/\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])/g, "")
    .replace(/\r\n?/g, "\n")
    .replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\u00b7");
}

/** Why a request waits, in two or three words; `explain` has the sentence. */
export function waitsFor(request: { waiting: { count: number; reason: string } | null }): string {
  if (request.waiting === null) return "the next round decides";
  return `${request.waiting.count}: ${readable(request.waiting.reason)}`;
}
