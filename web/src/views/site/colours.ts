/** By what the hosts of a map are coloured: a value of each, and what the values mean. */
import type { HostMap } from "../../api/types";
import { amount, noun, readable } from "../../words";

/** How a map is coloured: by a part of a whole, or by what kind a host is. */
export interface Colouring {
  /** Of each host: a part of 1 (above 1: over), or null where there is none. */
  parts: Float64Array | null;
  /** Of each host its position in `kinds`. */
  kind: Int16Array | null;
  kinds: readonly Kind[];
  /** The text about one host. */
  words: (host: number) => string;
}

export interface Kind {
  name: string;
  count: number;
  colour: string;
  /** Worth a mark, so that colour is not all that tells. */
  marked: boolean;
}

export interface Choice {
  value: string;
  name: string;
}

/** Told apart by people who see red and green alike, on dark as on light. */
const PALETTE = [
  "#4c8bf5", "#f2a33a", "#2bb3a3", "#d6608b", "#8a6fd1",
  "#9ab52d", "#c9713c", "#4fb0dd", "#b18b4a", "#7b8794",
] as const;
const NONE = "none";
const OTHERS = "others";
const STATES: Record<string, [string, boolean]> = {
  up: ["#2f9e5b", false],
  starting: ["#4fb0dd", false],
  draining: ["#8a6fd1", false],
  maintenance: ["#7b8794", false],
  "held back": ["#e0a021", true],
  "pool silent": ["#e0a021", true],
  "same machine": ["#e0a021", true],
  unreachable: ["#e8772e", true],
  down: ["#d03b3b", true],
};

export function stateOf(map: HostMap, host: number): string {
  const health = map.health[host] ?? "";
  if (health === "down" || health === "unreachable") return health;
  if (map.admin[host] !== "active") return map.admin[host] ?? "";
  const word = map.closed[host] ?? health;
  return word === "enrolling" || word === "returning" ? "starting" : readable(word); // as in lists
}

/** Values of a label by host: `zone=east` is `east` of `zone`; a word alone says that it is there. */
export function labelValue(map: HostMap, host: number, key: string): string | null {
  for (const at of map.labels_of[host] ?? []) {
    const label = map.labels[at] ?? "";
    if (label === key) return "yes";
    if (label.startsWith(`${key}=`)) return label.slice(key.length + 1);
  }
  return null;
}

export function labelKeys(map: HostMap): string[] {
  const keys = new Set(map.labels.map((each) => each.split("=", 1)[0] ?? each));
  return [...keys].sort((a, b) => (a === "zone" ? -1 : b === "zone" ? 1 : a.localeCompare(b)));
}

export function choices(map: HostMap): Choice[] {
  return [
    { value: "fullest", name: "Most committed resource" },
    ...map.resources.map((each) => ({ value: `use ${each.resource}`, name: `Committed ${noun(each.resource)}` })),
    { value: "vms", name: "Number of VMs" },
    { value: "state", name: "State" },
    { value: "tenant", name: "Tenant with most VMs" },
    ...labelKeys(map).map((key) => ({ value: `label ${key}`, name: `Label ${key}` })),
  ];
}

export function vmsOn(map: HostMap, host: number, tenant: number | null = null): number {
  let vms = 0;
  for (const [who, many] of map.held_by[host] ?? []) if (tenant === null || who === tenant) vms += many ?? 0;
  return vms;
}

export function colouring(map: HostMap, by: string, tenant: string): Colouring {
  const hosts = map.names.length;
  if (by === "state") return byKind(map, (host) => stateOf(map, host), STATES);
  if (by.startsWith("label ")) return byKind(map, (host) => labelValue(map, host, by.slice(6)) ?? NONE);
  if (by === "tenant" && !tenant) {
    return byKind(map, (host) => map.tenants[map.held_by[host]?.[0]?.[0] ?? -1] ?? NONE);
  }
  if (by === "vms" || by === "tenant") {
    const who = by === "tenant" ? map.tenants.indexOf(tenant) : null;
    const many = Float64Array.from({ length: hosts }, (_, host) => vmsOn(map, host, who));
    const most = many.reduce((a, b) => Math.max(a, b), 1);
    return byPart(many.map((each) => each / most), (host) => `${many[host]} VMs${tenant && ` of ${tenant}`}`);
  }
  const chosen = map.resources.filter((each) => by === "fullest" || by === `use ${each.resource}`);
  const parts = new Float64Array(hosts);
  const scarcest = new Int16Array(hosts);
  chosen.forEach((each, index) => {
    for (let host = 0; host < hosts; host++) {
      const offered = each.capacity[host] ?? 0;
      const held = each.committed[host] ?? 0;
      const part = offered ? held / offered : held ? 2 : 0;
      if (part > (parts[host] ?? 0)) {
        parts[host] = part;
        scarcest[host] = index;
      }
    }
  });
  return byPart(parts, (host) => {
    const each = chosen[scarcest[host] ?? 0];
    if (each === undefined) return "no resources";
    const [held = 0, offered = 0] = [each.committed[host], each.capacity[host]];
    return `${noun(each.resource)} ${amount(each.resource, held)} of ${amount(each.resource, offered)}`;
  });
}

function byPart(parts: Float64Array, words: (host: number) => string): Colouring {
  return { parts, kind: null, kinds: [], words };
}

/** The kinds with most hosts have colours of their own. */
function byKind(
  map: HostMap,
  of: (host: number) => string,
  known: Record<string, [string, boolean]> = {},
): Colouring {
  const counts = new Map<string, number>();
  const names = map.names.map((_, host) => of(host));
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const order = [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0], undefined, { numeric: true }));
  const shown = order.filter(([name]) => name !== NONE).slice(0, PALETTE.length);
  // By name, so that colours stay where they are while counts change.
  shown.sort((a, b) => a[0].localeCompare(b[0], undefined, { numeric: true }));
  const kinds: Kind[] = shown.map(([name, count], index) => {
    const [colour, marked] = (Object.hasOwn(known, name) ? known[name] : undefined) ?? [PALETTE[index] ?? "", false];
    return { name, count, colour, marked };
  });
  const place = new Map(kinds.map((each, index) => [each.name, index]));
  const left = order.filter(([name]) => !place.has(name) && name !== NONE).reduce((sum, [, many]) => sum + many, 0);
  if (left) place.set(OTHERS, kinds.push({ name: OTHERS, count: left, colour: "", marked: false }) - 1);
  const none = counts.get(NONE) ?? 0;
  if (none) place.set(NONE, kinds.push({ name: NONE, count: none, colour: "", marked: false }) - 1);
  const kind = Int16Array.from(names, (name) => place.get(name) ?? place.get(OTHERS) ?? -1);
  return { parts: null, kind, kinds, words: (host) => names[host] ?? "" };
}
