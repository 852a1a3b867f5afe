"""Text for workloads: reads like reports and listings, differs everywhere, and is the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_NOUNS = _split("""
account agent archive balance battery bridge budget building cable camera carrier channel city client code
column contract council country customer delay delivery device document door driver engine error estimate
evening factory field figure file forecast garden gateway group harbour hospital index invoice island journal
kitchen label lake library limit machine manager market meeting member method mirror model morning mountain
museum network number office order owner package paper parcel partner party pattern payment people period
permit plan platform player point policy price printer problem process product project quarter question record
region report request result river road room route sample school season section sensor server service shelf
signal source square station stock storage street student summer supply surface system table teacher ticket
topic tower train transfer truck valley value version village visitor warehouse water weather week window
winter worker
""")
_VERBS = _split("""
accepts adds approves asks assigns blocks books brings builds calls cancels carries changes checks closes
collects compares confirms contains copies counts covers creates delays delivers describes drops enters exceeds
explains fails finds finishes follows holds includes keeps leaves lists loads loses marks measures meets misses
moves needs offers opens passes pays plans prepares prints produces protects reaches reads receives records
refuses removes repairs replaces reports requires returns reviews rises sells sends shares shows signs starts
stops stores suggests supports takes tests tracks trains updates uses visits waits warns writes
""")
_ADJECTIVES = _split("""
annual bright broken busy central cheap clean clear cold common current daily deep early eastern empty exact
final first foreign free fresh full general green heavy high important inner large late left light local long
lower main missing modern narrow new northern old open outer plain private public quick quiet rare recent red
regular right rough safe second sharp short simple slow small southern special spare steady strong sudden third
total upper urgent usual warm western wide yellow young
""")
_LINKS = _split("""
after although and because before but if near since so that under until when where while with without
""")
_CHINESE = _split("""
今天 明天 昨天 北京 上海 广州 深圳 杭州 会议 报告 仓库 订单 客户 合同 价格 天气 下雨 温度 火车 车站 机场 学校 医院
市场 工厂 项目 计划 问题 结果 数据 系统 服务 文件 图书 电池 传感器 服务器 已经完成 需要检查 尚未付款 按时到达
""")
_CHINESE_SHARE = 0.015  # of the words; each takes several tokens of a vocabulary made for English
_NUMBER_SHARE = 0.01


def make_words(rng: random.Random, num_words: int) -> str:
    """`num_words` words in sentences; numbers and Chinese words among them, separated by spaces."""
    words: list[str] = []
    while len(words) < num_words:
        words += _sentence(rng)
    del words[num_words:]
    words[-1] = words[-1].rstrip(".") + "."
    return " ".join(words)


def _sentence(rng: random.Random) -> Iterator[str]:
    length = rng.randint(9, 18)
    kinds = (("the",), _ADJECTIVES, _NOUNS, _VERBS, ("the", "a", "one", "each"), _NOUNS, _LINKS)
    for index in range(length):
        draw = rng.random()
        if draw < _CHINESE_SHARE:
            word = rng.choice(_CHINESE)
        elif draw < _CHINESE_SHARE + _NUMBER_SHARE:
            word = str(rng.randint(2, 999))
        else:
            word = rng.choice(kinds[index % len(kinds)])
        if index == 0:
            word = word.capitalize()
        yield word + "." if index == length - 1 else word
