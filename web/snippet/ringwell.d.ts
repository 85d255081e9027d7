/** A number on the page and the visitor's number in its place. Both are E.164. */
export interface Swap {
  from: string;
  to: string;
  /** `to` in its country's usual form. */
  formatted: string;
}

/** The script's object at `window.ringwell`. */
export interface Ringwell {
  /**
   * Returns the visitor's numbers for these numbers on the page. A number without a swap maps to
   * itself. Waits at most 1.5 s for the server.
   */
  numbers(wanted: string[]): Promise<Swap[]>;
  /** Calls `listener` now if there are numbers, and after each change. */
  onChange(listener: (swaps: Swap[]) => void): void;
  /**
   * Requests the numbers again, for instance after a late first answer. A visitor with a number
   * keeps it, and the parameters of the visit in which it was requested.
   */
  run(): void;
  /**
   * Sets whether data about the visitor may be stored. `false` removes this data and shows the
   * page's own numbers.
   */
  consent(isGiven: boolean): void;
  /** Calls `then` at once. Before the script has loaded, `window.ringwell` may be an array of such functions. */
  push(then: (ringwell: Ringwell) => void): void;
}

declare global {
  interface Window {
    ringwell?: Ringwell | ((ringwell: Ringwell) => void)[];
  }
}
