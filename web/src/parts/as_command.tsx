/** What a view does, as a command and as a call of the API: both ready to copy. */
import { useState } from "preact/hooks";
import { shellWord } from "../words";

/** One call: what `curl` needs to know. */
export interface Call {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Below `/v1/`, with its query. */
  path: string;
  body?: unknown;
  /** Name of a file that is sent as it is. */
  file?: string;
}

export function Command({ line, calls = [] }: { line: string; calls?: Call[] }) {
  return (
    <div class="commands">
      <Line title="By command:" line={line} />
      {calls.length > 0 && (
        <details>
          <summary>By a call of the API</summary>
          {calls.map((each, index) => (
            <Line key={index} line={curlOf(each)} />
          ))}
        </details>
      )}
    </div>
  );
}

function Line({ title, line }: { title?: string; line: string }) {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    navigator.clipboard.writeText(line).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), 2_000);
      },
      () => {}, // the browser does not let us
    );
  };
  return (
    <p class="command">
      {title && <span>{title}</span>}
      <code>{line}</code>
      {"clipboard" in navigator && (
        <button type="button" class="quiet" onClick={copy}>
          {copied ? "Copied" : "Copy"}
        </button>
      )}
    </p>
  );
}

/** The API's own address as the page sees it; where a token goes stands a variable. */
function curlOf({ method = "GET", path, body, file }: Call): string {
  const url = new URL(`../v1/${path}`, location.href.split("#")[0]).href;
  const words = ["curl", ...(method === "GET" ? [] : ["-X", method]), shellWord(url)];
  words.push("-H", '"Authorization: Bearer $FUGA_TOKEN"');
  if (body !== undefined) {
    words.push("-H", "'Content-Type: application/json'", "-d", shellWord(JSON.stringify(body)));
  }
  if (file !== undefined) {
    words.push("-H", "'Content-Type: application/octet-stream'", "--data-binary", shellWord(`@${file}`));
  }
  return words.join(" ");
}
