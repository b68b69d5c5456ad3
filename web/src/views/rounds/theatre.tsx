/** One round as theatre: its hosts on a stage, step by step, computed again from what is stored. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../../api/client";
import type { RoundGame } from "../../api/types";
import { Command, Panel, ProblemMessage } from "../../parts/basics";
import { to } from "../../route";
import { count, percent } from "../../words";
import { Lines, PATIENCE_MS, useOnce } from "./parts";
import { over, sceneAt, signed, stepText, title } from "./play";
import { Shares, Stage, Weighing } from "./stage";

const MAX_STEPS = 1_000;
const SPEEDS: readonly [string, number][] = [
  ["slow", 2_400],
  ["steady", 1_200],
  ["fast", 400],
];

export function Theatre({ number }: { number: string }) {
  const path = `rounds/${encodeURIComponent(number)}/game`;
  const reading = useCallback(
    () => get<RoundGame>(path, { steps: MAX_STEPS }, { patienceMs: PATIENCE_MS }),
    [path],
  );
  const { data: game, problem, busy, ask } = useOnce(reading, true);
  return (
    <>
      <p class="back">
        <a href={to("rounds", number)}>Round {number}</a>
      </p>
      <h1>Round {number} as theatre</h1>
      <ProblemMessage problem={problem} />
      {busy && (
        <p class="loading" role="status">
          Computing the round again from what is stored …
        </p>
      )}
      {problem && !busy && (
        <p>
          <button type="button" onClick={ask}>
            Try again
          </button>
        </p>
      )}
      {game && <Played game={game} />}
      <Command line={`fuga rounds game ${number}`} calls={[{ path: `${path}?steps=${MAX_STEPS}` }]} />
    </>
  );
}

function Played({ game }: { game: RoundGame }) {
  const last = game.steps.length;
  const [at, setAt] = useState(0);
  const [plays, setPlays] = useState(false);
  const [pauseMs, setPauseMs] = useState(SPEEDS[1]?.[1] ?? 1_200);
  const scene = useMemo(() => sceneAt(game, at), [game, at]);
  const stop = (where: number): void => {
    setPlays(false);
    setAt(Math.min(last, Math.max(0, where)));
  };
  useEffect(() => {
    if (!plays) return;
    const timer = setInterval(() => setAt((now) => Math.min(last, now + 1)), pauseMs);
    return () => clearInterval(timer);
  }, [plays, pauseMs, last]);
  useEffect(() => {
    if (at === last) setPlays(false);
  }, [at, last]);
  const play = (): void => {
    if (!plays && at === last) setAt(0);
    setPlays(!plays);
  };
  const keys: Record<string, () => void> = {
    ArrowLeft: () => stop(at - 1),
    ArrowRight: () => stop(at + 1),
    Home: () => stop(0),
    End: () => stop(last),
    " ": play,
  };
  return (
    <>
      <p class={game.identical ? "message good" : "message warn"}>
        {game.identical
          ? `What you see is what was decided: computed again by ${game.policy}, the same bit for bit.`
          : `This is not what was decided. ${game.differences.join("; ")}`}
        {game.steps_left_out > 0 &&
          ` The first ${game.steps.length} steps are shown, ${game.steps_left_out} more are not.`}
      </p>
      <div
        class="theatre"
        onKeyDown={(event) => {
          const within = event.target as Element;
          const own = within.matches("select, a") || (event.key === " " && within.matches("button"));
          const act = keys[event.key];
          if (act === undefined || own || event.ctrlKey || event.metaKey || event.altKey) return;
          event.preventDefault();
          act();
        }}
      >
        <div class="controls" role="group" aria-label="Play the round">
          <button type="button" disabled={at === 0} onClick={() => stop(0)}>
            First
          </button>
          <button type="button" disabled={at === 0} onClick={() => stop(at - 1)}>
            Back
          </button>
          <button type="button" class="primary" onClick={play}>
            {plays ? "Pause" : "Play"}
          </button>
          <button type="button" disabled={at === last} onClick={() => stop(at + 1)}>
            Next
          </button>
          <button type="button" disabled={at === last} onClick={() => stop(last)}>
            Last
          </button>
          <input
            type="range"
            min={0}
            max={last}
            value={at}
            aria-label="Step"
            aria-valuetext={`${at} of ${last}: ${title(game, scene.step)}`}
            onInput={(event) => stop(Number(event.currentTarget.value))}
          />
          <span class="counted">
            {at} / {last}
          </span>
          <select
            aria-label="Speed"
            value={pauseMs}
            onChange={(event) => setPauseMs(Number(event.currentTarget.value))}
          >
            {SPEEDS.map(([name, ms]) => (
              <option key={ms} value={ms}>
                {name}
              </option>
            ))}
          </select>
        </div>
        <p class="narration" aria-live={plays ? "off" : "polite"}>
          {stepText(game, scene.step)}
        </p>
        <div class="scene">
          <div class="left">
            <Stage game={game} scene={scene} />
            <div class="game-measures">
              <Lines
                label="Distance from fair shares"
                at={at}
                onPick={stop}
                format={percent}
                series={[{ name: "distance from fair", colour: "one", values: over(game, "fair_distance") }]}
              />
              <Lines
                label="The game's measures"
                at={at}
                onPick={stop}
                format={signed}
                series={[
                  { name: "v(A)", colour: "one", values: over(game, "fairness") },
                  { name: "skewness", colour: "two", values: over(game, "skewness") },
                  { name: "potential", colour: "three", values: over(game, "potential") },
                ]}
              />
            </div>
          </div>
          <div class="right">
            <Weighing game={game} scene={scene} />
            <Shares game={game} scene={scene} />
            <Steps game={game} at={at} onPick={stop} />
          </div>
        </div>
      </div>
      <p class="hint prose">
        Keys: left and right step, Home and End lead to the first and last, the space bar plays.
        v(A) is the fairness between tenants, 0 at best; skewness tells how unevenly hosts use their
        resources; a host takes what makes v(A) less its own skewness highest. Combinations are ranked by{" "}
        {game.ranking.join(", ") || "nothing"}.
        {game.hosts_left_out > 0 && ` ${count(game.hosts_left_out, "host")} of which no step tells stay off the stage.`}
      </p>
    </>
  );
}

const SHOWN = 200;

/** The steps as a list, around the one that is shown. */
function Steps(given: { game: RoundGame; at: number; onPick: (at: number) => void }) {
  const { game, at } = given;
  const first = Math.max(0, Math.min(at - SHOWN / 2, game.steps.length - SHOWN));
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    // The list alone: `scrollIntoView` would turn the page away from the stage.
    const here = list.current?.querySelector<HTMLElement>("[aria-current]");
    if (list.current && here) list.current.scrollTop = here.offsetTop - list.current.clientHeight / 2;
  }, [at]);
  return (
    <Panel title="Steps">
      <ol ref={list} class="step-list" start={first + 1}>
        {game.steps.slice(first, first + SHOWN).map((step, place) => {
          const here = first + place + 1;
          return (
            <li key={here}>
              <button
                type="button"
                class={`step ${step.kind}`}
                aria-current={here === at ? "step" : undefined}
                onClick={() => given.onPick(here)}
              >
                {title(game, step)}
              </button>
            </li>
          );
        })}
      </ol>
    </Panel>
  );
}
