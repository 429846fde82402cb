"""The texts of the playbook as data: (English, Simplified Chinese). `words.py` makes sentences of them."""

from __future__ import annotations

Text = tuple[str, str]

CURVES: dict[str, Text] = {
    "goodput_rps": ("goodput", "有效吞吐"),
    "output_tokens_per_s": ("throughput", "吞吐"),
    "ttft_s": ("TTFT p95", "TTFT p95"),
    "itl_s": ("ITL p95", "ITL p95"),
    "cost_per_request": ("cost per request", "每请求成本"),
    "quality": ("probability of the same answer", "给出相同回答的概率"),
}

# name: (title, what it should move, trap)
STEP_TEXTS: dict[str, tuple[Text, Text, Text]] = {
    "continuous-paged": (
        ("Continuous batching with paged KV", "连续批处理 + 分页 KV"),
        (
            "Throughput, and TTFT under load: a finished request gives seat and memory to the next one at once. The "
            "two are one step, since seats that change at every step need memory that comes in small pieces.",
            "吞吐，以及有负载时的 TTFT：请求一结束，槽位和内存立刻让给下一个。"
            "两者作为一步：槽位每一步都可能换请求，内存就必须小块分配。",
        ),
        (
            "Answers of equal length that arrive together gain nothing, and a full batch makes each token wait longer.",
            "回答等长又同时到达时没有收益；批满时每个 token 等得更久。",
        ),
    ),
    "kv-int8": (
        ("KV cache in INT8", "KV 缓存 INT8"),
        (
            "Requests in memory at once, and so throughput and queueing, where KV memory is what runs out.",
            "内存中同时容纳的请求数，从而改善吞吐和排队，前提是 KV 内存正是瓶颈。",
        ),
        (
            "With memory to spare it only adds conversions; on a CPU reading INT8 is no faster than reading BF16.",
            "内存有余时只是多了换算；在 CPU 上读 INT8 并不比读 BF16 快。",
        ),
    ),
    "w8a8": (
        ("Weights and activations in INT8 (W8A8)", "权重与激活 INT8（W8A8）"),
        (
            "Time a token and throughput: half the bytes of the weights, and integer products where hardware has them.",
            "每 token 时间和吞吐：权重字节减半，硬件支持时用整数乘法。",
        ),
        (
            "Outliers in activations cost quality, and without fast integer products a full batch gains little.",
            "激活离群值会损失质量；没有快速整数乘法时，批满后收益很小。",
        ),
    ),
    "w4a16": (
        ("Weights in four bits (W4A16, AWQ)", "四位权重（W4A16，AWQ）"),
        (
            "Memory, and time a token at small batches, where reading the weights is what takes the time.",
            "内存，以及小批量时的每 token 时间（时间主要花在读权重上）。",
        ),
        (
            "The loss sits in rare knowledge that a mean does not show, and large batches become slower.",
            "损失藏在均值看不到的长尾知识里；大批量反而变慢。",
        ),
    ),
    "speculation": (
        ("Speculation by look-up in the prompt", "投机解码（在提示中查找草稿）"),
        (
            "Time a token of few, slow sequences whose answers repeat their prompt; nothing has to be trained.",
            "序列少、模型慢、回答重复提示内容时的每 token 时间；无需训练。",
        ),
        (
            "Few drafts are accepted where answers are new, and a small model or a full batch has no idle arithmetic "
            "to check them with.",
            "回答是新内容时草稿很少被接受；小模型或批已满时没有空闲算力来验证。",
        ),
    ),
    "pd": (
        ("Prefill and decode apart (PD)", "PD 分离"),
        (
            "Gaps between tokens while long prompts arrive.",
            "长提示到来时的 token 间隔。",
        ),
        (
            "The same cores are split in two, keys and values have to be moved, and chunked prefill gives much of the "
            "steadiness for nothing.",
            "同样的核心被一分为二，KV 还要搬运；分块预填充几乎无代价就能得到大部分平稳。",
        ),
    ),
    "prefix-cache": (
        ("Prefix cache", "前缀缓存"),
        (
            "TTFT of prompts that begin alike: what was computed once is not computed again.",
            "开头相同的提示的 TTFT：算过的不再算。",
        ),
        (
            "Prompts that share nothing gain nothing, and what is kept takes blocks from what runs.",
            "提示互不相同时没有收益；保留的块会占用正在运行的请求的内存。",
        ),
    ),
    "chunked-prefill": (
        ("Chunked prefill", "分块预填充"),
        (
            "Gaps between tokens of others while a long prompt is computed.",
            "计算长提示时其他请求的 token 间隔。",
        ),
        ("The long prompt's own first token comes later.", "长提示自己的首 token 会更晚。"),
    ),
    "flash": (
        ("FlashAttention", "FlashAttention"),
        ("TTFT and memory of long prompts.", "长提示的 TTFT 和内存。"),
        ("Short prompts gain nothing.", "短提示没有收益。"),
    ),
    "graph": (
        ("A whole step as one call (CUDA Graph)", "整步一次调用（CUDA Graph）"),
        (
            "Time a token of small models and small batches, where launching is what takes the time.",
            "小模型、小批量时的每 token 时间（时间主要花在启动上）。",
        ),
        (
            "Steps of large batches hide their launches anyway; here it may already be so by default.",
            "大批量的步本来就能掩盖启动开销；默认可能已经如此。",
        ),
    ),
    "draft": (
        ("Speculation with a trained draft (EAGLE)", "投机解码（训练好的 EAGLE 草稿）"),
        (
            "Time a token of a large model whose drafts are accepted.",
            "草稿接受率高的大模型的每 token 时间。",
        ),
        (
            "On a small model the draft costs more than it saves; look at the acceptance rate before anything else.",
            "小模型上草稿的开销大于节省；先看接受率。",
        ),
    ),
    "queue-limit": (
        ("A short queue", "短队列"),
        ("TTFT of the requests that are taken.", "被接收请求的 TTFT。"),
        (
            "The others are refused: without an objective on errors that is no gain.",
            "其余的被拒绝：没有错误率目标时不算收益。",
        ),
    ),
    "rate-limit": (
        ("A rate limit", "限速"),
        ("TTFT and steadiness of the requests that are taken.", "被接收请求的 TTFT 和平稳性。"),
        (
            "It serves less. The limit has to be near what the service can do, which a sweep tells.",
            "服务得更少。限速应接近服务能力，负载扫描可以得出。",
        ),
    ),
}

# name: (title, scenario)
RECIPE_TEXTS: dict[str, tuple[Text, Text]] = {
    "rollout": (
        ("The roll-out ladder", "上线阶梯"),
        (
            "For any service: batching and paging first, then KV quantization, W8A8, W4 or speculation, and prefill "
            "and decode apart last.",
            "适合任何服务：先批处理与分页，再 KV 量化、W8A8、W4 或投机解码，最后 PD 分离。",
        ),
    ),
    "short-questions": (
        ("Many short questions", "大量短问题"),
        (
            "Chat with short prompts and many at once. First continuous batching and W8A8, then KV quantization and a "
            "captured step.",
            "短提示、高并发的问答。先连续批处理和 W8A8，再 KV 量化和整步捕获。",
        ),
    ),
    "long-documents": (
        ("Long documents", "长文档"),
        (
            "Prompts of thousands of tokens. First KV quantization, FlashAttention and paging, then the prefix cache "
            "and chunked prefill.",
            "数千 token 的提示。先 KV 量化、FlashAttention 和分页，再前缀缓存和分块预填充。",
        ),
    ),
    "slow-tokens": (
        ("A large model, slow token by token", "大模型逐字慢"),
        (
            "One reader who waits for each token. First speculation with a draft that is accepted, then W8A8.",
            "读者盯着每个 token。先用接受率高的草稿做投机解码，再 W8A8。",
        ),
    ),
    "single-card": (
        ("A single card or an edge device", "单卡或边缘设备"),
        (
            "Memory is what there is least of. First four-bit weights, then KV quantization.",
            "内存最紧张。先四位权重，再 KV 量化。",
        ),
    ),
    "jitter": (
        ("Latency that jitters", "延迟抖动"),
        (
            "Answers stall while long prompts arrive. First prefill and decode apart, then limits on rate and queue.",
            "长提示到来时回答卡顿。先 PD 分离，再限速和限队列。",
        ),
    ),
}

PHRASES: dict[str, Text] = {
    "list": (", ", "、"),
    "claim_open": ("More repeats would decide the steps that are open.", "增加重复次数即可判定尚无定论的步骤。"),
    "claim_undone": (
        "Step by step was not enough: {steps} had to be taken back.",
        "仅逐步比较并不足够：{steps} 最终不得不撤回。",
    ),
    "claim_refused": ("The curves did not allow {steps}.", "曲线不允许采用 {steps}。"),
    "claim_read_again": (
        "Judged on the ladder of {at} UTC (run {run_id}).",
        "判定依据为 {at} UTC 的上线阶梯（运行 {run_id}）。",
    ),
    "claim_missing": ("Not measured here: {steps}.", "此处未测：{steps}。"),
    "claim_close": (
        "Of {count} pairs of steps {close} could not be told apart.",
        "{count} 对步骤中有 {close} 对无法区分先后。",
    ),
    "then": (", then ", "，其次 "),
    "gap": (" ", ""),
    "because": (" (needed by {value}: {name})", "（{value} 需要 {name}）"),
    "effort": ("{kind}, about {hours} h", "{kind}，约 {hours} 小时"),
    "effort_config": ("configuration", "改配置"),
    "effort_code": ("code or a checkpoint", "改代码或检查点"),
    "effort_architecture": ("architecture", "改架构"),
    "outcome_adopted": ("adopted", "采用"),
    "outcome_rolled_back": ("rolled back", "回退"),
    "outcome_undecided": ("not adopted, undecided", "未采用，尚无定论"),
    "outcome_already_there": ("already in place", "已经具备"),
    "outcome_cant_run_here": ("skipped, it can't run here", "跳过，本机无法运行"),
    "verdict_better": ("better", "更好"),
    "verdict_worse": ("worse", "更差"),
    "verdict_no_difference": ("no difference", "无差异"),
    "verdict_inconclusive": ("undecided", "尚无定论"),
    "better": ("Better: {curves}.", "更好：{curves}。"),
    "worse": (
        "Worse, and no objective allows it: {curves}.",
        "更差，且没有目标允许：{curves}。",
    ),
    "allowed": ("Worse, but still within the objectives: {curves}.", "更差，但仍在目标之内：{curves}。"),
    "no_gain": ("No guarded curve became better.", "纳入把关的曲线没有一条变好。"),
    "open": (
        "No curve is decided for the better; open are {curves}. {repeats}",
        "没有曲线判定为更好；未定：{curves}。{repeats}",
    ),
    "leaning": (
        "It gains, but may be a loss in {curves}, which is not decided. {repeats}",
        "有收益，但 {curves} 可能变差，尚未判定。{repeats}",
    ),
    "not_told": ("Not decided: {curves}.", "未判定：{curves}。"),
    "repeats_needed": (
        "About {repeats} repeats would decide it; {made} were made.",
        "约需 {repeats} 次重复才能判定；已做 {made} 次。",
    ),
    "repeats_unknown": (
        "{made} repeats were made; how many more can't be named: the machine is too uneven for a change so small.",
        "已做 {made} 次重复，无法给出还需多少：相对这么小的变化，机器太不平稳。",
    ),
    "objective": ("It breaks what was met before: {objectives}.", "打破了原先满足的目标：{objectives}。"),
    "objective_row": (
        "{name} is {value}, the limit is {limit} (before: {before})",
        "{name} 为 {value}，上限 {limit}（此前 {before}）",
    ),
    "failing": ("{share} of the requests fail; before it was {before}.", "{share} 的请求失败；此前为 {before}。"),
    "answers": (
        "It should change no answer and does: {curves}.",
        "它不应改变回答，却改变了：{curves}。",
    ),
    "from_nothing": ("{name} from nothing to {value}", "{name} 从无到 {value}"),
    "to_nothing": ("{name} down to nothing", "{name} 降到零"),
    "quality_lost": (
        "Quality is lost: {drop} points of the answers [{interval}] on {items} items, of which {most} may be lost.",
        "质量受损：{items} 题上回答下降 {drop} 个百分点 [{interval}]，允许 {most}。",
    ),
    "quality_kept": (
        "Quality is kept: the loss against the start is {drop} points [{interval}] on {items} items.",
        "质量保持：相对起点的损失为 {drop} 个百分点 [{interval}]（{items} 题）。",
    ),
    "unseen": (
        "Whether quality is kept the guard can't tell: its questions go to the model itself, past {variables}.",
        "质量是否保持，质量护栏无从判断：题目直接交给模型，绕过了 {variables}。",
    ),
    "quality_open": (
        "Whether quality is kept is not decided: {drop} points lost [{interval}] on {items} items; {most} may be.",
        "质量是否保持尚未判定：{items} 题上损失 {drop} 个百分点 [{interval}]，允许 {most}。",
    ),
    "slices": ("Worst: {slices}.", "最差：{slices}。"),
    "slice": ("{name} {drop} points", "{name} {drop} 个百分点"),
    "items_needed": ("About {items} items would decide it.", "约需 {items} 题才能判定。"),
    "there": ("It is set already: {values}.", "已经设置：{values}。"),
    "cant_run": ("{error}.", "{error}。"),
    "undone": (
        "It was adopted, and taken back when the end was measured against the start. {why}",
        "曾被采用，但终点与起点直接对比后撤回。{why}",
    ),
    "what": ("{number}. {step} ({changes})", "{number}. {step}（{changes}）"),
    "what_plain": ("{number}. {step}", "{number}. {step}"),
    "paragraph": ("{what}: {outcome}. {why}", "{what}：{outcome}。{why}"),
    "nothing_tried": (
        "No step could be tried: each is in place already or can't run here.",
        "没有可试的步骤：要么已经具备，要么本机无法运行。",
    ),
    "nothing_adopted": (
        "No step of the {count} tried was adopted on this workload; it ends as it began.",
        "试过的 {count} 个步骤在此负载上均未采用；终点即起点。",
    ),
    "adopted": ("{count} of {of} steps adopted: {steps}.", "{of} 个步骤中采用 {count} 个：{steps}。"),
    "end_to_start": (
        "The end against the start, measured directly: {curves}.",
        "终点与起点直接对比实测：{curves}。",
    ),
    "moved": ("{name} {change} {interval} ({verdict})", "{name} {change} {interval}（{verdict}）"),
    "opening": (
        "Workload {workload}; objectives: {slo}; {repeats} paired repeats a step. It began from {start}.",
        "负载 {workload}；目标：{slo}；每步 {repeats} 次配对重复。起点：{start}。",
    ),
    "defaults": ("the defaults", "默认设置"),
    "no_objectives": ("none", "无"),
    "undone_steps": (
        "Taken back at the end, since the whole was worse than the start in a guarded curve: {steps}.",
        "因整体在纳入把关的曲线上差于起点，最后撤回：{steps}。",
    ),
    "order_none": (
        "The usual order of return can't be compared: fewer than two of its steps were measured.",
        "无法与通行的性价比顺序比较：测得的步骤少于两个。",
    ),
    "order_agrees": (
        "By return on effort here: {order}. That is the usual order.",
        "此处按性价比：{order}。与通行的顺序一致。",
    ),
    "order_disagrees": (
        "By return on effort here: {order}. The usual order differs: {against}.",
        "此处按性价比：{order}。与通行的顺序不同：{against}。",
    ),
    "order_open": (
        "By return on effort here: {order}. Which is first the intervals do not tell, so neither do they contradict "
        "the usual order.",
        "此处按性价比：{order}。区间分不出先后，因此也不与通行的顺序矛盾。",
    ),
    "pair": ("{second} returned more than {first}", "{second} 的回报高于 {first}"),
    "next_open": (
        "{step} is worth another look with more repeats or items.",
        "{step} 值得用更多重复或题目再看一次。",
    ),
    "simulate": ("{step} can be simulated, labelled so: {command}", "{step} 可以模拟（会标明）：{command}"),
}
