/**
 * Server-sent events, read with `fetch`: an EventSource cannot send a token but in its address.
 */
import { ask, Problem } from "./client";

export interface Message {
  kind: string;
  data: unknown;
}

/** Three of the API's own beats. */
const SILENCE_MS = 45_000;
/** Until the first message; a proxy that keeps answers back never passes it on. */
const BEGIN_MS = 10_000;

/**
 * Follow a stream until it ends; `stop` ends it here.
 *
 * Raises `Problem` if the API refuses it, or does not answer.
 */
export async function follow(path: string, stop: AbortSignal, heard: (message: Message) => void): Promise<void> {
  const silence = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let begun = false;
  const within = (ms: number): void => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), ms);
  };
  within(BEGIN_MS);
  try {
    const answer = await ask(path, AbortSignal.any([stop, silence.signal]));
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const part = await reader?.read();
      if (!part || part.done) return;
      begun = true;
      within(SILENCE_MS);
      text += part.value;
      const messages = text.split("\n\n");
      text = messages.pop() ?? "";
      for (const each of messages) {
        const found = parsed(each);
        if (found !== null) heard(found);
      }
    }
  } catch (problem) {
    if (silence.signal.aborted && !begun) throw new Problem(404, null, null, "no stream comes through");
    throw problem;
  } finally {
    clearTimeout(timer);
  }
}

function parsed(text: string): Message | null {
  let kind = "message";
  let data: string | null = null;
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ")) data = line.slice(6);
  }
  return data === null ? null : { kind, data: JSON.parse(data) };
}
