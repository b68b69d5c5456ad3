/** What a round's steps say and do: from the API's answer to what the stage shows. */
import type { RoundGame } from "../../api/types";
import { count, decimals } from "../../words";

export type Step = RoundGame["steps"][number];
export type Weighed = Step["combinations"][number];

/** A round after so many of its steps. */
export interface Scene {
  /** The step that led here; null: before the first. */
  step: Step | null;
  /** By host and request: VMs that this round has placed so far. */
  taken: Map<number, Map<number, number>>;
  /** Of each tenant. */
  shares: number[];
  fairDistance: number | null;
  /** Hosts in the order of play of the game that is on, or was last. */
  order: number[];
  /** Hosts that have moved in it. */
  moved: ReadonlySet<number>;
}

export function sceneAt(game: RoundGame, at: number): Scene {
  const taken = new Map<number, Map<number, number>>();
  const shares = game.tenants.map((each) => each.before);
  let fairDistance = game.fair_distance;
  let order = game.steps.find((each) => each.kind === "game")?.order ?? [];
  let moved = new Set<number>();
  for (const step of game.steps.slice(0, at)) {
    if (step.kind === "game") {
      order = step.order;
      moved = new Set();
    }
    if (step.kind === "move" && step.host != null) moved.add(step.host);
    for (const row of step.rows) {
      const there = taken.get(row.host) ?? new Map<number, number>();
      there.set(row.request, (there.get(row.request) ?? 0) + row.count);
      taken.set(row.host, there);
    }
    for (const each of step.shares) shares[each.tenant] = each.share;
    fairDistance = step.fair_distance;
  }
  return { step: game.steps[at - 1] ?? null, taken, shares, fairDistance, order, moved };
}

export type Measure = "fairness" | "skewness" | "potential" | "fair_distance";

/** A measure before the first step and after each; null where there is no game. */
export function over(game: RoundGame, measure: Measure): (number | null)[] {
  const before = measure === "fair_distance" ? game.fair_distance : null;
  return [before, ...game.steps.map((each) => each[measure] ?? null)];
}

/** Hosts as they stand on the stage: in order of play, then who does not play. */
export function onStage(game: RoundGame, order: number[]): number[] {
  const plays = new Set(order);
  return [...order, ...game.hosts.map((_, place) => place).filter((place) => !plays.has(place))];
}

/** VMs of requests as a combination of types: "2 small + 1 big". */
export function inTypes(game: RoundGame, vms: Iterable<{ request: number; count: number }>): string {
  const counts = new Map<string, number>();
  for (const each of vms) {
    const request = game.requests[each.request];
    const type = `${request?.borrowed ? "borrowed " : ""}${request?.vm_type ?? "?"}`;
    counts.set(type, (counts.get(type) ?? 0) + each.count);
  }
  const words = [...counts].filter(([, many]) => many !== 0).sort(([a], [b]) => (a < b ? -1 : 1));
  return words.map(([type, many]) => `${many} ${type}`).join(" + ");
}

export const chosenOf = (step: Step): Weighed | undefined => step.combinations.find((each) => each.chosen);

const NAMED = 3;

function listed(names: string[]): string {
  const more = names.length - NAMED;
  return names.slice(0, NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

const hostsOf = (game: RoundGame, step: Step): string =>
  listed([...new Set(step.rows.map((row) => game.hosts[row.host]?.name ?? "?"))]);

const vmsOf = (step: Step): number => step.rows.reduce((sum, row) => sum + Math.max(0, row.count), 0);

export const SOLVED: Record<string, string> = {
  exact: "exactly, by backward induction",
  sweeps: "by Algorithm 1 of the paper and best-response sweeps",
  sequential: "by Algorithm 1 of the paper",
};

const HOW: Record<string, string> = {
  exact: "foreseeing how those after it will answer, it takes",
  last_two: "foreseeing how the other of the last two will answer, it takes",
  sequential: "given what those before it in the computation took, it takes",
  sweeps: "in answer to what the others took, it now takes",
};

/** A step in a sentence. */
export function stepText(game: RoundGame, step: Step | null): string {
  if (step === null) return "The cluster as the round found it. Press Play, or step through.";
  const hosts = hostsOf(game, step);
  switch (step.kind) {
    case "before":
      return `Before the games, Best-Fit places ${count(vmsOf(step), "VM")} of gangs or within limits on ${hosts}.`;
    case "game":
      return (
        `Game ${step.game}: ${count(step.players ?? 0, "host")} may take ${count(step.vms ?? 0, "VM")}, ` +
        `solved ${SOLVED[step.how ?? ""] ?? step.how}. Who could do least with what is left plays first.`
      );
    case "move": {
      const chosen = chosenOf(step);
      const name = step.host == null ? "?" : (game.hosts[step.host]?.name ?? "?");
      const took = chosen ? inTypes(game, chosen.vms) || "nothing" : "?";
      const of = step.combinations.length;
      return `${name} weighs ${count(of, "combination")}: ${HOW[step.how ?? ""] ?? "it takes"} ${took}.`;
    }
    case "handed_out":
      return `Game ${step.game} ends: the VMs that hosts took go to the requests whose turn it is.`;
    case "best_fit":
      return `Best-Fit DRFH places ${count(vmsOf(step), "VM")} that no game placed, on ${hosts}.`;
    case "gang":
      return `Gangs that had not begun: Best-Fit places ${count(vmsOf(step), "VM")} on ${hosts}.`;
    case "exchange": {
      const got = step.rows.find((row) => row.count > 0);
      const gave = step.rows.find((row) => row.count < 0);
      if (!got || !gave || step.rows.length > 2) return `Exchanges that are not shown one by one, on ${hosts}.`;
      const to = game.requests[got.request];
      const from = game.requests[gave.request];
      return (
        `Fair exchange on ${hosts}: ${count(-gave.count, "VM")} of ${from?.name} (${from?.tenant}) ` +
        `${gave.count === -1 ? "makes" : "make"} room for one of ${to?.name} (${to?.tenant}), who had less.`
      );
    }
    case "rest":
      return game.steps_left_out || game.policy !== "fuga"
        ? `All that is not shown step by step: ${count(vmsOf(step), "VM")} on ${hosts}.`
        : `Rules outside the game: ${count(vmsOf(step), "VM")} on ${hosts}.`;
  }
}

/** A step's name in a list or on a slider. */
export function title(game: RoundGame, step: Step | null): string {
  if (step === null) return "Before the round";
  const host = step.host == null ? "" : (game.hosts[step.host]?.name ?? "");
  switch (step.kind) {
    case "game":
      return `Game ${step.game} begins`;
    case "move":
      return `${host} moves`;
    case "handed_out":
      return `Game ${step.game} ends`;
    case "exchange":
      return `Exchange on ${host || "hosts"}`;
    case "best_fit":
      return "Best-Fit";
    case "before":
      return "Before the games";
    case "gang":
      return "Gangs";
    case "rest":
      return "The rest";
  }
}

export function signed(value: number): string {
  const text = decimals(Math.abs(value), 4);
  return value < 0 && Number(text) > 0 ? `\u2212${text}` : text;
}

export interface Choice extends Weighed {
  name: string;
  /** How many combinations are the same once they are cut to the VMs that are left. */
  alike: number;
}

/** What a move weighed, those that are the same as one. */
export function choices(game: RoundGame, step: Step): Choice[] {
  const found = new Map<string, Choice>();
  for (const each of step.combinations) {
    const name = inTypes(game, each.vms) || "nothing";
    const key = `${name} ${each.utility.toFixed(9)}`;
    const before = found.get(key);
    if (before) {
      before.alike += 1;
      before.chosen ||= each.chosen;
    } else {
      found.set(key, { ...each, name, alike: 1 });
    }
  }
  return [...found.values()];
}
