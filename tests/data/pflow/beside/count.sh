printf '%s\n' "${text}" | wc -w
