// Follows the visitor's consent, in Google's Consent Mode v2 and the TCF.

/**
 * The interval in milliseconds at which the page's dataLayer is checked, because it reports no
 * changes.
 */
const LOOK = 500;

/** Calls `decided(isAllowed)` for the latest decision so far, and for each later one. */
export const follow = (decided, seen) => {
  const look = () => {
    let last = seen;
    for (const entry of window.dataLayer || []) {
      if (entry?.[0] === 'consent' && entry[2]?.analytics_storage) last = entry;
    }
    if (last !== seen) decided((seen = last)[2].analytics_storage === 'granted');
  };
  look();
  setInterval(look, LOOK);
  window.__tcfapi?.('addEventListener', 2, (data, isGood) => {
    if (isGood && /^[tu]/.test(data.eventStatus)) decided([1, 7].every((purpose) => data.purpose.consents[purpose]));
  });
};
