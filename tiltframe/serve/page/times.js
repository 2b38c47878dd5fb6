// Times are written in one way, "2024-05-01 10:00:00 UTC+02:00", in the zone of the store. All times are seconds since 1970.

const clocks = new Map();
const LAST = 8.64e12; // the last second that a Date can represent

// Return "2024-05-01 10:00:00", the clock of a zone.
export function wallClock(seconds, zone) {
  if (!clocks.has(zone)) {
    clocks.set(zone, new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }));
  }
  return clocks.get(zone).format(seconds * 1000).replace(/^\d+/, (year) => year.padStart(4, "0"));
}

export function written(seconds, zone) {
  if (!(Math.abs(seconds) <= LAST)) return "no time";
  return `${wallClock(seconds, zone)} ${offsetText(offsetOf(seconds, zone))}`;
}

// The clock after the year 9999 cannot be parsed, and is taken for UTC.
function offsetOf(seconds, zone) {
  const clock = Date.parse(`${wallClock(seconds, zone).replace(" ", "T")}Z`) / 1000;
  return Number.isNaN(clock) ? 0 : clock - Math.floor(seconds);
}

function offsetText(offset) {
  if (!offset) return "UTC";
  const minutes = Math.round(Math.abs(offset) / 60);
  const two = (number) => String(number).padStart(2, "0");
  return `UTC${offset < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

// Return a text of the server with its times, such as 2024-05-01T10:00:00Z, as the page writes them.
export function withWrittenTimes(text, zone) {
  return text.replace(/\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})/g, (time) => written(Date.parse(time) / 1000, zone));
}

const WRITTEN = /^\s*(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(:\d{2}(?:\.\d+)?)?)?\s*(?:(Z|UTC)?([+-]\d{2}):?(\d{2})|(Z|UTC))?\s*$/;

// Return the seconds of a text, which is in the zone unless it has an offset, or null if it cannot be parsed.
export function readTime(text, zone) {
  const match = WRITTEN.exec(text ?? "");
  if (!match) return null;
  const [, day, minute = "00:00", second = ":00", , hours, minutes, isUTC] = match;
  const clock = Date.parse(`${day}T${minute}${second}Z`) / 1000;
  if (Number.isNaN(clock)) return null;
  if (isUTC) return clock;
  if (Math.abs(hours) > 23 || minutes > 59) return null;
  if (hours) return clock - Number(hours) * 3600 - Math.sign(Number(`${hours}1`)) * Number(minutes) * 60;
  return atWallClock(clock, zone);
}

// Return the time at which the clock of a zone shows a time, which is written as seconds since 1970 in UTC.
export function atWallClock(clock, zone) {
  const guess = clock - offsetOf(clock, zone);
  return clock - offsetOf(guess, zone);
}

// Return the start of the day of a time, moved by a number of days and hours of the clock.
export function dayOf(seconds, zone, { days = 0, hours = 0 } = {}) {
  const midnight = Date.parse(`${wallClock(seconds, zone).slice(0, 10)}T00:00:00Z`) / 1000;
  return atWallClock(midnight + days * 86400 + hours * 3600, zone);
}

// Return a time as it is sent to the server.
export const timeText = (seconds) => new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z");

// Return "15m": a length in the greatest unit that divides it.
export function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1], ["ms", 0.001]];
  const [unit, size] = units.find(([, size]) => seconds >= size && Number.isInteger(seconds / size)) ?? ["s", 1];
  return `${seconds / size}${unit}`;
}
