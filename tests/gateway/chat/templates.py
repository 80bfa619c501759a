"""Small chat templates in the markup of several families, each with a trait of its own."""

_TURNS = """
{%- if tools %}
  {{- '<|im_start|>system\\n' }}
  {%- for tool in tools %}{{ (tool | tojson) + '\\n' }}{%- endfor %}
  {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
  {{- '<|im_start|>' + message.role + '\\n' + message.content }}
  {%- for call in message.tool_calls or [] %}
    {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
    {{- '}\\n</tool_call>' }}
  {%- endfor %}
  {{- '<|im_end|>\\n' }}
{%- endfor %}
"""
_ANSWER = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"

CHATML = _TURNS + _ANSWER
"""Qwen 2.5's: takes the arguments of calls as objects, content as a text."""

THINKING = (
    _TURNS
    + """
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n<think>\\n' }}
  {%- if enable_thinking is defined and enable_thinking is false %}{{ '\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
)
"""Qwen 3's: the prompt ends inside reasoning unless thinking is off."""

ARGUMENTS_AS_TEXT = """
{%- for m in messages %}
  {%- if m.tool_calls and m.content is none %}
    {%- for call in m.tool_calls %}{{ call.function.name + '```json ' + call.function.arguments + '```' }}{% endfor %}
  {%- elif m.content is not none %}{{ m.role + ': ' + m.content }}{% endif %}
{%- endfor %}
"""
"""DeepSeek's: joins arguments to texts, and shows calls only if content is none."""

TEXT_OR_CALLS = """
{%- for m in messages %}
  {%- if m.content %}{{ m.role + ': ' + m.content + '\\n' }}
  {%- else %}{% for call in m.tool_calls or [] %}{{ 'call: ' + (call.function | tojson) + '\\n' }}{% endfor %}
  {%- endif %}
{%- endfor %}
"""
"""DeepSeek R1's: shows calls only in messages without a text."""

NINE_LETTERS = """
{%- for m in messages %}
  {%- for call in m.tool_calls or [] %}
    {%- if call.id | length != 9 %}{{ raise_exception('Ids should have length 9!') }}{% endif %}
    {{- '[TOOL_CALLS][' + (call.function | tojson) + ', "id": "' + call.id + '"]' }}
  {%- endfor %}
  {%- if m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.tool_call_id }}{% endif %}{{ m.content }}
{%- endfor %}
"""
"""Mistral's: refuses ids of other lengths."""

PARTS = """
{%- for m in messages %}{{ m.role }}:{% for part in m.content %}{{ part.text }}{% endfor %};{% endfor %}
"""
"""Takes content only as an array of parts."""

THINKING_PARTS = """
{%- for m in messages %}
  {%- if m.content is string %}{{ m.content }}{% else %}
    {%- for part in m.content %}
      {%- if part.type == 'thinking' %}{{ '[THINK]' + part.thinking + '[/THINK]' }}{% else %}{{ part.text }}{% endif %}
    {%- endfor %}
  {%- endif %};
{%- endfor %}
"""
"""Ministral's: takes reasoning as a part of the content."""

SYSTEM_FIRST = """
{%- for m in messages %}
  {%- if m.role == 'system' and not loop.first %}
    {{- raise_exception('System message must be at the beginning.') }}
  {%- endif %}
  {{- m.role + ': ' + m.content + '\\n' }}
{%- endfor %}
"""
"""Qwen 3.5's: refuses later instructions."""

LAST_SYSTEM = """
{%- set ns = namespace(system='') %}
{%- for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}
{{- ns.system }}
{%- for m in messages if m.role != 'system' %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}
"""
"""DeepSeek R1's: shows the last instructions only."""

ALTERNATING = """
{%- for m in (messages[1:] if messages[0].role == 'system' else messages) %}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{%- endfor %}
{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}
"""
"""Mistral Small 3.2's: takes late instructions only in place of an answer."""

NO_DEVELOPER = """
{%- for m in messages %}
  {%- if m.role in ['system', 'user', 'assistant'] %}{{ m.role + ': ' + m.content + '\\n' }}{% endif %}
  {%- if m.role == 'developer' and loop.last %}{{ raise_exception('A question is missing') }}{% endif %}
{%- endfor %}
"""
"""DeepSeek V3.2's: has the name of the role, and leaves out its messages."""

NO_SYSTEM = """
{%- for m in messages %}
  {%- if m.role not in ['user', 'assistant'] %}{{ raise_exception('System role not supported') }}{% endif %}
  {{- '<start_of_turn>' + m.role + '\\n' + m.content + '<end_of_turn>\\n' }}
{%- endfor %}
"""
"""Gemma 2's: knows neither instructions nor tools."""

EFFORTS = """
{%- set taken = efforts_taken %}
{%- if reasoning_effort is defined and enable_thinking is not false and reasoning_effort not in taken %}
  {{- raise_exception('Unknown effort ' + reasoning_effort) }}
{%- endif %}
{%- for m in messages %}{{ m.content }}{% endfor %} {{ reasoning_effort }}
"""
"""Takes only some efforts, which stand in place of `efforts_taken`: Qwen 3.8's and Hunyuan 3's."""

NO_NONE = """
{%- for m in messages %}{{ m.content }}{% endfor %}
{%- if reasoning_effort in ['low', 'minimal'] %} no reasoning{% endif %}
"""
"""Solar Open's: "minimal" leaves reasoning out, and "none" is one of the names that it does not know."""
