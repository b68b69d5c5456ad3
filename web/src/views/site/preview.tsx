/** What moves would do, before anything moves: a plan that nobody has approved. */
import { useEffect, useState } from "preact/hooks";
import { get, newKey, Problem, send } from "../../api/client";
import type { Plan, PlanMoves } from "../../api/types";
import { ProblemMessage } from "../../parts/basics";
import { count, decimals, duration, readable } from "../../words";

const LOOK_EVERY_MS = 500;
const SHOWN = 8;

export interface Preview {
  hosts: string[];
  plan: Plan | null;
  moves: PlanMoves | null;
  problem: Problem | null;
  waitedMs: number;
  /** Let the plan stay: it is approved by now. */
  keep: () => void;
}

/** Have a plan decided that empties hosts. It is cancelled when nobody looks at it any more. */
export function usePreview(hosts: string[] | null): Preview {
  const [plan, setPlan] = useState<Plan | null>(null);
  const [moves, setMoves] = useState<PlanMoves | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [waitedMs, setWaited] = useState(0);
  const [kept] = useState<Set<string>>(() => new Set());
  const joined = hosts === null ? null : hosts.join("\n");
  useEffect(() => {
    setPlan(null);
    setMoves(null);
    setProblem(null);
    if (joined === null) return;
    let over = false;
    let id: string | null = null;
    const began = Date.now();
    const drop = (): void => {
      // What was approved, or failed, refuses to be cancelled, and that is well.
      if (id !== null && !kept.has(id)) void send("POST", `plans/${id}/cancel`, { body: {} }).catch(() => undefined);
    };
    const look = async (): Promise<void> => {
      try {
        let found = await send<Plan>("POST", "plans", {
          body: { kind: "evacuate", hosts: joined.split("\n") },
          key: newKey(),
        });
        id = found.id;
        while (!over && found.state === "pending") {
          setPlan(found);
          await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
          setWaited(Date.now() - began);
          found = await get<Plan>(`plans/${id}`);
        }
        if (!over) setMoves(await get<PlanMoves>(`plans/${id}/moves`));
        if (!over) setPlan(found);
      } catch (found) {
        if (!(found instanceof Problem)) throw found;
        if (!over) setProblem(found);
      }
      if (over) drop();
    };
    void look();
    return () => {
      over = true;
      drop();
    };
  }, [joined]);
  return { hosts: hosts ?? [], plan, moves, problem, waitedMs, keep: () => plan && kept.add(plan.id) };
}

interface Stays {
  vm: string;
  obstacle: string | null;
  why: string | null;
  missing: { host: string; amounts: Record<string, number> } | null;
}

export function staysOf(plan: Plan): Stays[] {
  return plan.not_moved as unknown as Stays[];
}

/** Why a VM has no place elsewhere, in words. */
export function whyItStays(each: Stays): string {
  const why = readable(each.obstacle ?? each.why ?? "no place");
  if (!each.missing) return why;
  const amounts = Object.entries(each.missing.amounts).map(([name, amount]) => `${amount} ${readable(name)}`);
  return `${why}; on ${each.missing.host}, which lacks least, ${amounts.join(", ")} more`;
}

export function WouldMove({ preview, names }: { preview: Preview; names: Map<string, string> }) {
  const { plan, moves, problem } = preview;
  if (problem !== null) return <ProblemMessage problem={problem} />;
  if (plan === null || plan.state === "pending") {
    return (
      <p class="message" role="status">
        The control centre decides what would move …
        {preview.waitedMs > 5_000 && ` It has taken ${duration(preview.waitedMs / 1000)} by now: is one there?`}
      </p>
    );
  }
  if (plan.state === "failed") return <p class="message bad" role="alert">{plan.last_error}</p>;
  const stays = staysOf(plan);
  const goals = new Map<string, number>();
  for (const move of moves?.items ?? []) goals.set(move.to_host, (goals.get(move.to_host) ?? 0) + 1);
  const where = [...goals].sort((a, b) => b[1] - a[1]);
  return (
    <div class={`message ${stays.length ? "warn" : "good"}`} role="status">
      <p>
        {count(plan.moves, "VM")} would move{plan.moves > 0 && `, in ${count(plan.waves, "wave")}, with ${decimals(plan.moved_gib, 1)} GiB`}
        {where.length > 0 &&
          `: ${where.slice(0, SHOWN).map(([host, many]) => `${many} to ${host}`).join(", ")}${where.length > SHOWN ? ", …" : ""}`}
        . {stays.length === 0 ? "None would stay." : `${count(stays.length, "VM")} would stay:`}
      </p>
      {stays.length > 0 && (
        <ul>
          {stays.slice(0, SHOWN).map((each) => (
            <li key={each.vm}>
              {names.get(each.vm) ?? each.vm}: {whyItStays(each)}
            </li>
          ))}
          {stays.length > SHOWN && <li>and {stays.length - SHOWN} more</li>}
        </ul>
      )}
    </div>
  );
}
