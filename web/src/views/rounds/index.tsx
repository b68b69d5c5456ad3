/** Rounds: over time, one of them, and one as theatre. */
import "./rounds.css";
import { OneRound } from "./one";
import { Theatre } from "./theatre";
import { Timeline } from "./timeline";

/** `rounds`, `rounds/7`, `rounds/7/game`. */
export function Rounds({ path }: { path: string[] }) {
  const [number, what] = path;
  if (number === undefined) return <Timeline />;
  return what === "game" ? <Theatre key={number} number={number} /> : <OneRound key={number} number={number} />;
}
