/** Starts Chromium for the tests, without its background activity. CHROMIUM sets the program. */
export const CHROMIUM = {
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  // The back button restores pages from the cache, as in a user's browser.
  ignoreDefaultArgs: ['--disable-back-forward-cache'],
};
