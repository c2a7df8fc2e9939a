// Numbers, times and names as people read them.

const NUMBER = new Intl.NumberFormat("en");
const DATE = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });

export function count(number: number, one: string, many = `${one}s`): string {
  return `${NUMBER.format(number)} ${number === 1 ? one : many}`;
}

export function number(value: number): string {
  return NUMBER.format(value);
}

/** A time in milliseconds, with as many digits as matter. */
export function milliseconds(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  if (ms < 10_000) return `${NUMBER.format(Math.round(ms))} ms`;
  return duration(ms / 1000);
}

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 172_800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} days`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  if (size < 1024 * 1024) return `${(size / 1024).toFixed(1)} KiB`;
  return `${(size / 1024 / 1024).toFixed(1)} MiB`;
}

/** "just now", "4 min ago", "in 3 min", and the date for what is longer ago than a day. */
export function ago(at: string | number | Date, now: number): string {
  const then = new Date(at).getTime();
  if (Number.isNaN(then)) return "–";
  const seconds = (now - then) / 1000;
  if (Math.abs(seconds) < 5) return "just now";
  if (Math.abs(seconds) > 86_400) return DATE.format(then);
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

export function date(at: string | number | Date): string {
  const then = new Date(at);
  return Number.isNaN(then.getTime()) ? "–" : DATE.format(then);
}
