"""Pairs of words that turn a question into another one, by language. A word stands in one pair only."""

ENGLISH = (
    ("before", "after"), ("over", "under"), ("above", "below"), ("first", "last"), ("most", "least"),
    ("maximum", "minimum"), ("increase", "decrease"), ("raise", "lower"), ("rise", "fall"),
    ("start", "stop"), ("begin", "end"), ("enable", "disable"), ("install", "uninstall"), ("add", "remove"),
    ("send", "receive"), ("buy", "sell"), ("import", "export"), ("upload", "download"), ("open", "close"),
    ("hot", "cold"), ("faster", "slower"), ("fast", "slow"), ("more", "less"), ("larger", "smaller"),
    ("bigger", "tinier"), ("high", "low"), ("higher", "lesser"), ("ascending", "descending"), ("early", "late"),
    ("earlier", "later"), ("inside", "outside"), ("upgrade", "downgrade"), ("deposit", "withdraw"),
    ("gain", "lose"), ("win", "loss"), ("front", "rear"), ("left", "right"), ("north", "south"), ("east", "west"),
    ("encrypt", "decrypt"), ("compress", "decompress"), ("connect", "disconnect"), ("lock", "unlock"),
    ("mute", "unmute"), ("push", "pull"), ("public", "private"), ("maternity", "paternity"), ("domestic", "foreign"),
    ("arrival", "departure"), ("outbound", "inbound"), ("cause", "cure"), ("for", "against"), ("with", "without"),
    ("on", "off"), ("always", "never"), ("longer", "shorter"), ("input", "output"), ("prefill", "decode"),
)  # fmt: skip
CHINESE = (
    ("之前", "之后"), ("以前", "以后"), ("以上", "以下"), ("打开", "关闭"), ("开启", "停用"), ("启用", "禁用"),
    ("增加", "减少"), ("提高", "降低"), ("上升", "下降"), ("安装", "卸载"), ("添加", "删除"), ("发送", "接收"),
    ("上传", "下载"), ("买入", "卖出"), ("进口", "出口"), ("开始", "结束"), ("最早", "最晚"), ("最多", "最少"),
    ("最大", "最小"), ("最高", "最低"), ("更快", "更慢"), ("更多", "更少"), ("升级", "降级"), ("存款", "取款"),
    ("出发", "到达"), ("国内", "国际"), ("升序", "降序"), ("第一", "最后"), ("转入", "转出"), ("加密", "解密"),
    ("连接", "断开"), ("锁定", "解锁"), ("公开", "私有"), ("产假", "陪产假"), ("支持", "反对"), ("输入", "输出"),
    ("预填充", "解码"), ("左边", "右边"), ("上午", "下午"), ("入职", "离职"), ("里面", "外面"), ("往返", "单程"),
)  # fmt: skip
