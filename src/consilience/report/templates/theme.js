// Before anything is painted: the theme asked for in the address or chosen earlier; without either, the system's.
(function () {
  var wanted = new URLSearchParams(location.search).get("theme");
  try { wanted = wanted || localStorage.getItem("consilience-theme"); } catch (error) { /* no storage for this file */ }
  if (wanted === "dark" || wanted === "light") document.documentElement.dataset.theme = wanted;
})();
