"""The texts of reports about questions, caveats, labels, plans and steadiness, in English and Simplified Chinese.
`words.py` has them with its own."""

from __future__ import annotations

KIND_WORDS: dict[str, tuple[str, str]] = {
    "title_of": ("{kind}: {said}", "{kind}：{said}"),
    "of_what": ("{what}: {of}", "{what}：{of}"),
    "formula": ("formula", "公式"),
    "remark": ("remark", "备注"),
    "warning": ("Warning: {text}", "警告：{text}"),
    "md_more": ("… and {count} more lines", "……另有 {count} 行"),
    "given": ("given", "给定"),
    "events_arm": ("arm {arm}", "第 {arm} 组"),
    "accepted_share": ("accepted/drafted", "接受/草稿"),
    "tokens_per_pass": ("tokens/pass", "token/次前向"),
    "share_of_step": ("share of the step", "占单步的比例"),
    "q_bench": (
        "How fast are requests of the workload {workload} served with these settings?",
        "在这些设置下，负载 {workload} 的请求能被多快地服务？",
    ),
    "q_compare": (
        "What does {variable} = {candidate} change against {baseline} on the workload {workload}, with everything else "
        "held equal?",
        "在负载 {workload} 上，其余保持不变，{variable} 取 {candidate} 与取 {baseline} 相比有什么变化？",
    ),
    "q_factorial": (
        "What do {first} and {second} do alone and together on the workload {workload}?",
        "在负载 {workload} 上，{first} 与 {second} 单独和一起各有什么效果？",
    ),
    "q_eval": (
        "How much of the answers' quality is lost, slice by slice?",
        "回答质量在各切片上损失多少？",
    ),
    "q_speculation": (
        "Which form of draft makes decoding faster, on which texts, and by how much?",
        "哪种草稿形式能加快解码？在哪些文本上？快多少？",
    ),
    "q_profile": ("Where does the time of one step ({step}) go?", "一步（{step}）的时间花在哪里？"),
    "q_sweep": (
        "How do throughput and latency move with {over} on the workload {workload}, and where is the limit?",
        "在负载 {workload} 上，吞吐与延迟随{over}如何变化，上限在哪里？",
    ),
    "q_plan": (
        "Which deployment of {model} serves {rate} requests/s within the objectives ({slo}) for the least money?",
        "哪种 {model} 部署能以最低成本服务 {rate} 请求/s 并满足目标（{slo}）？",
    ),
    "q_jitter": (
        "Which setting keeps the gaps between tokens steady while long prompts arrive?",
        "长提示到来时，哪种设置能让 token 间隔保持平稳？",
    ),
    "q_claim": ("Does this hold on this machine: {statement}", "这在本机上成立吗：{statement}"),
    "q_claims": ("Which common claims about inference hold on this machine?", "关于推理的常见论断，哪些在本机上成立？"),
    "claims_rows": ("Claims", "论断"),
    "claims_when": ("run", "运行"),
    "claims_instead": ("Where it can't run here, the simulator can be asked", "本机无法运行时，可以改问模拟器"),
    "q_other": ("What did this run say ({kind})?", "这次运行说明了什么（{kind}）？"),
    "caveats": ("Before you rely on it", "使用这些结论之前"),
    "c_here": (
        "It holds for this machine, model, workload and code; another may answer otherwise.",
        "结论只适用于这台机器、这个模型、负载和代码；换一个可能得出不同的答案。",
    ),
    "c_one_run": (
        "One run has no interval: how much it would differ the next time can't be told from it. A comparison repeats.",
        "单次运行没有置信区间，无法判断下一次会相差多少；对比会重复测量。",
    ),
    "c_few_samples": (
        "The smallest sample behind a p99 has {n} values; below 100 it lies between the two largest of them.",
        "p99 所依据的最小样本只有 {n} 个值；少于 100 个时，它落在最大的两个值之间。",
    ),
    "c_few_pairs": (
        "Only {repeats} paired repeats: the intervals are wide, and a small effect can't be told from none.",
        "只有 {repeats} 次配对重复：区间很宽，小的效果与没有效果无法区分。",
    ),
    "c_open": (
        "Inconclusive is not the same as no difference: {names}.",
        "“尚无定论”不等于“无差异”：{names}。",
    ),
    "c_simulated": (
        "The figures are simulated: they come from a model of the hardware, not from a run on it.",
        "这些数值为模拟结果：来自硬件模型，而不是在该硬件上的运行。",
    ),
    "c_eval_items": (
        "The slices are small and built in: they show what is lost, not how a public leaderboard would rank it.",
        "各切片为内置的小题集：能看出损失了什么，但不能代表公开排行榜上的名次。",
    ),
    "c_eval_open": (
        "Where a slice is inconclusive, its items are too few to tell a loss from none.",
        "切片尚无定论时，说明题数太少，无法区分有无损失。",
    ),
    "c_speculation": (
        "Acceptance depends on the texts: another task can gain more, or lose.",
        "接受率取决于文本：换一个任务，收益可能更大，也可能变成损失。",
    ),
    "c_constructed": (
        "The constructed part has an acceptance that was set, not found.",
        "“构造”部分的接受率是设定的，而不是测得的。",
    ),
    "c_profile": (
        "A profiled step is slower than one that is not watched; shares carry over better than times.",
        "被剖析的一步比不被观察时慢；比例比绝对时间更可信。",
    ),
    "c_sweep": (
        "Between the points nothing was measured: a knee is known only as finely as they lie.",
        "各点之间没有测量：拐点的精细程度取决于点的间距。",
    ),
    "c_jitter": (
        "A limit on the queue or the rate looks steady since it serves less: see the refused requests.",
        "队列或速率上限看起来平稳，是因为服务得少：请看被拒绝的请求。",
    ),
    "c_plan": (
        "Traffic is simulated as independent arrivals at an even rate; real bursts need more room.",
        "流量按均匀速率的独立到达来模拟；真实的突发需要更多余量。",
    ),
    "c_plan_prices": (
        "No price was given for {gpus}: 1 per device-hour is assumed.",
        "未给出 {gpus} 的价格：假定每设备小时为 1。",
    ),
    "labels": ("Where the figures are from", "数值的来源"),
    "l_measured": (
        "Read from clocks, counters or the machine while the run took place.",
        "运行时从时钟、计数器或机器读取。",
    ),
    "l_computed": (
        "A formula over figures that were measured or given.",
        "由实测或给定的数值按公式得出。",
    ),
    "l_simulated": (
        "From a model of hardware with a virtual clock; no such hardware ran.",
        "来自带虚拟时钟的硬件模型；并没有在这样的硬件上运行。",
    ),
    "l_estimated": ("A guess before the run, from what is known about similar ones.", "运行前根据类似情形作出的估计。"),
    "l_assumed": (
        "Set because nothing better is known, such as a price; change it and what follows changes.",
        "因没有更好的依据而设定，例如价格；改变它，后面的结果也随之改变。",
    ),
    "l_given": ("Chosen by whoever started the run.", "由发起运行的人选定。"),
    "raw_title": ("Raw data", "原始数据"),
    "raw_how": (
        "Every figure and every event of all repeats as one table: trilemma report {id} --format parquet, or csv.",
        "全部数值与每次重复的全部事件，合为一张表：trilemma report {id} --format parquet（或 csv）。",
    ),
    "nb_how": (
        "The cells below make the tables and charts of this report again from the data in this notebook; they need "
        "pandas and Altair and no network. `table(n)` is a table as shown, `exact(n)` the same with the store's own "
        "values, `chart(n)` and `points(n)` a chart and what it draws.",
        "下面的单元格用本笔记本内的数据重新生成报告中的表格与图；只需 pandas 和 Altair，无需网络。`table(n)` "
        "为所示的表格，`exact(n)` 为存储中的原值，`chart(n)` 与 `points(n)` 为图及其数据点。",
    ),
    "plan_best": (
        "Cheapest: {plan}, {devices} cards, {cost} per million output tokens.",
        "最便宜：{plan}，{devices} 张卡，每百万输出 token {cost}。",
    ),
    "plan_none": (
        "No plan meets the objectives with these cards.",
        "用这些卡没有任何方案满足目标。",
    ),
    "plan_fastest": (
        "Fastest for a user: {plan}, {user} tokens/s at {times} times the cost.",
        "对单个用户最快：{plan}，{user} token/s，成本为 {times} 倍。",
    ),
    "p_front": ("Speed for a user against speed of a card", "单用户速度对单卡速度"),
    "p_front_caption": (
        "Every simulated replica at its limit; drawn are those that no other beats in both.",
        "每个被模拟的副本在其上限处；图中为两项都不被其他方案超过的副本。",
    ),
    "p_replica": ("replica", "副本"),
    "p_per_user": ("tokens/s for a user", "每用户 token/s"),
    "p_per_card": ("tokens/s of a card", "每卡 token/s"),
    "p_limit": ("limit, requests/s", "上限，请求/s"),
    "p_load": ("load, requests/s", "负载，请求/s"),
    "p_on_front": ("on the front", "在前沿上"),
    "p_plans": ("Plans, the cheapest first", "方案（从最便宜起）"),
    "p_plan": ("plan", "方案"),
    "p_deployment": ("deployment", "部署"),
    "p_devices": ("cards", "卡数"),
    "p_replicas": ("replicas", "副本数"),
    "p_binding": ("What limits it", "受何限制"),
    "p_objectives": ("Objectives at its load", "其负载下的目标"),
    "p_launch": ("Launch lines", "启动命令"),
    "p_title": ("Plan {id}: {label}", "方案 {id}：{label}"),
    "p_band": (
        "Step times are {calibration}; within about {band} %.",
        "步时间：{calibration}；误差约 {band} %。",
    ),
    "p_pruned": ("What was left out, and why", "被排除的方案及原因"),
    "p_example": ("example", "示例"),
    "p_prices": ("Prices", "价格"),
    "p_gpu": ("card", "加速卡"),
    "p_price": ("per device-hour", "每设备小时"),
    "jitter_best": (
        "Steadiest is {arm}: p99 of the gap between tokens {gap}, against {base_gap} with {base}.",
        "最平稳的是 {arm}：token 间隔 p99 为 {gap}，{base} 为 {base_gap}。",
    ),
    "jitter_first": (
        "No arm is steadier than {arm}: p99 of the gap between tokens {gap}.",
        "没有哪一组比 {arm} 更平稳：token 间隔 p99 为 {gap}。",
    ),
    "jitter_none": ("No arm gave two tokens in a row.", "没有任何一组连续给出两个 token。"),
    "jitter_undecided": (
        "The repeats do not decide it: the interval of the ratio contains 1.",
        "重复次数不足以判定：比值的区间包含 1。",
    ),
    "j_arms": ("Arms", "各组"),
    "j_caption": (
        "Medians over the repeats, s. Beside a prompt: gaps in which some prompt was computed; otherwise: the others.",
        "各次重复的中位数，秒。“旁有提示”：其间有提示在计算的间隔；“其余”：其他间隔。",
    ),
    "j_against": ("Against {arm}", "对比 {arm}"),
    "j_ratio": ("ratio", "比值"),
    "j_course": ("Longest gap by half seconds", "每半秒的最长间隔"),
    "j_course_caption": ("Of the first repeat, s.", "第一次重复，秒。"),
    "j_time": ("s from the first arrival", "自首个到达起的秒数"),
    "j_itl_p50_s": ("ITL p50", "ITL 中位数"),
    "j_itl_p99_s": ("ITL p99", "token 间隔 p99"),
    "j_itl_max_s": ("longest gap", "最长间隔"),
    "j_beside_p99_s": ("p99 beside a prompt", "旁有提示时 p99"),
    "j_alone_p99_s": ("p99 otherwise", "其余 p99"),
    "j_first_gap_p95_s": ("first gap p95", "首个间隔 p95"),
    "j_ttft_p95_s": ("TTFT p95", "首 token 延迟 p95"),
    "j_e2e_p95_s": ("end to end p95", "端到端 p95"),
    "j_output_tokens_per_s": ("tokens/s", "每秒 token 数"),
    "j_completed": ("successful", "成功"),
    "j_refused": ("refused", "被拒绝"),
    "j_failed": ("failed", "失败"),
}
