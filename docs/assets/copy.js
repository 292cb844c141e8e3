// What is copied from a Python session is its code, without prompts and results. Runs before the theme's own handler.
document.addEventListener("click", event => {
  const button = event.target.closest("[data-clipboard-target]")
  const code = button && document.querySelector(button.dataset.clipboardTarget)
  if (!code || !code.querySelector(".gp")) return
  const lines = code.textContent.split("\n").filter(line => /^(>>>|\.\.\.)( |$)/.test(line))
  button.dataset.clipboardText = lines.map(line => line.slice(4)).join("\n") + "\n"
}, true)
