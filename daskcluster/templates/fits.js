"use strict";
const main = document.querySelector("main");
async function refresh() {
  let answer = null;
  try {
    answer = await fetch(location.pathname + "?part=1", {cache: "no-store"});
    if (answer.ok) main.innerHTML = await answer.text();
  } catch (error) { answer = null; }
  document.body.classList.toggle("stale", !(answer && answer.ok));
}
setInterval(refresh, 1000);
