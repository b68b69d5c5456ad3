/** The stage of a round: hosts with what they hold, what one weighs, and tenants' shares. */
import type { RoundGame } from "../../api/types";
import { Panel } from "../../parts/basics";
import { amount, decimals, noun, percent } from "../../words";
import { choices, inTypes, onStage, type Scene, signed } from "./play";

/** So many tenants have a colour of their own. */
const COLOURS = 8;
/** More hosts than this are drawn small. */
const LARGE = 24;
/** Drawn at a time, around the one that acts. */
const MAX_HOSTS = 240;

const colourOf = (game: RoundGame, request: number): string => {
  const name = game.requests[request]?.tenant;
  const place = game.tenants.findIndex((each) => each.name === name);
  return place >= 0 && place < COLOURS ? `of-tenant-${place}` : "of-others";
};

const width = (part: number): { width: string } => ({ width: `${Math.min(100, Math.max(0, part * 100))}%` });

interface Segment {
  colour: string;
  part: number;
}

/** What a host has of one resource: what ran before, then by tenant what this round placed. */
function segments(game: RoundGame, scene: Scene, host: number, resource: string): Segment[] {
  const its = game.hosts[host];
  const capacity = its?.capacity[resource] ?? 0;
  if (!its || capacity <= 0) return [];
  const by = new Map<string, number>();
  for (const [request, many] of scene.taken.get(host) ?? []) {
    const used = Math.max(0, many) * (game.requests[request]?.demand[resource] ?? 0);
    const colour = colourOf(game, request);
    by.set(colour, (by.get(colour) ?? 0) + used);
  }
  const before = Math.max(0, capacity - (its.free[resource] ?? 0));
  return [
    { colour: "of-before", part: before / capacity },
    ...[...by].sort(([a], [b]) => (a < b ? -1 : 1)).map(([colour, used]) => ({ colour, part: used / capacity })),
  ];
}

export function Stage({ game, scene }: { game: RoundGame; scene: Scene }) {
  const all = onStage(game, scene.order);
  const large = all.length <= LARGE;
  const acting = all.indexOf(scene.step?.host ?? scene.step?.rows[0]?.host ?? -1);
  const first = Math.floor(Math.max(0, acting) / MAX_HOSTS) * MAX_HOSTS;
  const hosts = all.slice(first, first + MAX_HOSTS);
  const rank = new Map(scene.order.map((host, place) => [host, place + 1]));
  const touched = new Set(scene.step?.rows.map((row) => row.host) ?? []);
  const shown = large ? game.resources : game.resources.slice(0, 2);
  return (
    <>
      {hosts.length < all.length && (
        <p class="counted">
          Hosts {first + 1} to {first + hosts.length} of {all.length} in the order of play
        </p>
      )}
      <ol class={large ? "stage" : "stage small"} aria-label="Hosts in the order in which they play">
        {hosts.map((host) => {
          const its = game.hosts[host];
          if (!its) return null;
          const acts = scene.step?.host === host;
          const state = acts ? "acts" : touched.has(host) ? "touched" : rank.has(host) ? "" : "rests";
          const bars = shown.map((resource) => ({ resource, of: segments(game, scene, host, resource) }));
          const took = inTypes(
            game,
            [...(scene.taken.get(host) ?? [])].map(([request, many]) => ({ request, count: Math.max(0, many) })),
          );
          return (
            <li key={host} class={`player ${state}`} aria-current={acts ? "true" : undefined} title={large ? undefined : its.name}>
              <p class="name">
                <span class="rank">{rank.get(host) ?? "·"}</span> {its.name}
              </p>
              {bars.map(({ resource, of }) => (
                <p key={resource} class="meter">
                  {large && <span class="what">{noun(resource)}</span>}
                  <span class="track" role="img" aria-label={`${noun(resource)} of ${its.name}: ${percent(of.reduce((sum, each) => sum + each.part, 0))} in use`}>
                    {of.map((each) => (
                      <span key={each.colour} class={`seg ${each.colour}`} style={width(each.part)} />
                    ))}
                  </span>
                  {large && <span class="much">{amount(resource, its.capacity[resource] ?? 0)}</span>}
                </p>
              ))}
              {large && <p class="took">{took ? `+ ${took}` : rank.has(host) ? "\u00a0" : "does not play"}</p>}
            </li>
          );
        })}
      </ol>
    </>
  );
}

/** What the host that moves weighed; its cost is what keeps v(A) less skewness from 0. */
export function Weighing({ game, scene }: { game: RoundGame; scene: Scene }) {
  const step = scene.step;
  const host = step?.kind === "move" && step.host != null ? game.hosts[step.host] : undefined;
  if (!step || !host) {
    return (
      <Panel title="What a host weighs">
        <p class="empty">Shown when a host moves.</p>
      </Panel>
    );
  }
  // Costs of a thousandth are drawn as what they are: next to nothing.
  const most = Math.max(0.05, ...step.combinations.map((each) => -each.utility));
  return (
    <Panel title={`What ${host.name} weighs`}>
      <ol class="weighed">
        {choices(game, step).map((each) => (
          <li key={`${each.name} ${each.utility}`} class={each.chosen ? "chosen" : undefined}>
            <p>
              <span class="vms">
                {each.name} {each.alike > 1 && <span class="hint">{each.alike} alike</span>}
              </span>
              {each.chosen && <span class="state good">taken</span>}
              <span class="utility">{signed(each.utility)}</span>
            </p>
            <span
              class="track"
              role="img"
              aria-label={`v(A) ${signed(each.fairness)}, skewness ${decimals(each.skewness, 4)}`}
            >
              <span class="seg of-unfair" style={width(-each.fairness / most)} />
              <span class="seg of-skewed" style={width(each.skewness / most)} />
            </span>
          </li>
        ))}
      </ol>
      <p class="legend">
        <span class="chip of-unfair" /> unfairness, −v(A) <span class="chip of-skewed" /> its skewness: the shortest bar is
        the highest utility
      </p>
    </Panel>
  );
}

const MAX_TENANTS = 12;

export function Shares({ game, scene }: { game: RoundGame; scene: Scene }) {
  const most = Math.max(0.01, ...game.tenants.map((each) => Math.max(each.target, each.before, each.after)));
  const scale = Math.min(1, most * 1.1);
  const untold = game.tenants.length - MAX_TENANTS + game.tenants_left_out;
  return (
    <Panel title="Dominant shares, and what is fair">
      <ul class="shares">
        {game.tenants.slice(0, MAX_TENANTS).map((each, place) => {
          const share = scene.shares[place] ?? 0;
          return (
            <li key={each.name}>
              <span class={`chip ${place < COLOURS ? `of-tenant-${place}` : "of-others"}`} />
              <span class="name">{each.name}</span>
              <span class="track" role="img" aria-label={`${percent(share)}, fair is ${percent(each.target)}`}>
                <span class={`seg ${place < COLOURS ? `of-tenant-${place}` : "of-others"}`} style={width(share / scale)} />
                <span class="mark" style={{ left: `${Math.min(100, (each.target / scale) * 100)}%` }} />
              </span>
              <span class="much">{percent(share)}</span>
            </li>
          );
        })}
      </ul>
      <p class="legend">
        <span class="chip fair" /> fair share <span class="chip of-before" /> of hosts: ran before the round
        {untold > 0 && ` · and ${untold} tenants more`}
      </p>
    </Panel>
  );
}
