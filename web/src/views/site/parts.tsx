/** Small parts of operators' views. */

/** The call that a view or an action makes. */
export function Call({ line }: { line: string }) {
  return (
    <p class="command">
      <span>By the API:</span>
      <code>{line}</code>
    </p>
  );
}
