import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Does with a transactional producer what the lines on stdin say, and answers each with a line. */
public class Produce {
    private static KafkaProducer<byte[], byte[]> producer;
    private static boolean isOpen;

    public static void main(String[] words) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String answer;
            try {
                answer = "ok " + act(words, line.split("\t"));
            } catch (Exception problem) {
                Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
                boolean isFenced = false;
                for (Throwable each = cause; each != null; each = each.getCause()) {
                    isFenced |= each instanceof ProducerFencedException
                        || each instanceof InvalidProducerEpochException;
                }
                answer = (isFenced ? "fenced " : "refused ") + cause.getClass().getSimpleName();
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String act(String[] words, String[] order) throws Exception {
        switch (order[0]) {
            case "begin":
                forget();
                Properties settings = new Properties();
                settings.put("bootstrap.servers", words[0]);
                settings.put("transactional.id", words[1]);
                settings.put("transaction.timeout.ms", words[2]);
                settings.put("max.block.ms", words[3]);
                settings.put("request.timeout.ms", "3000");
                settings.put("delivery.timeout.ms", words[2]);
                settings.put("linger.ms", "0");
                producer =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                producer.initTransactions();
                return "";
            case "write":
                open();
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int at = 3; at < order.length; at += 2) {
                    byte[] key = order[at].isEmpty() ? null : bytes(order[at]);
                    sent.add(producer.send(new ProducerRecord<>(
                        order[1], Integer.parseInt(order[2]), key, bytes(order[at + 1]))));
                }
                StringBuilder offsets = new StringBuilder();
                for (Future<RecordMetadata> each : sent) {
                    offsets.append(each.get().offset()).append(' ');
                }
                return offsets.toString();
            case "stage":
                open();
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (int at = 2; at < order.length; at += 3) {
                    positions.put(
                        new TopicPartition(order[at], Integer.parseInt(order[at + 1])),
                        new OffsetAndMetadata(Long.parseLong(order[at + 2])));
                }
                producer.sendOffsetsToTransaction(positions, new ConsumerGroupMetadata(order[1]));
                return "";
            case "commit":
                producer.commitTransaction();
                isOpen = false;
                return "";
            case "abort":
                producer.abortTransaction();
                isOpen = false;
                return "";
            case "forget":
                forget();
                return "";
            default:
                throw new IllegalArgumentException(order[0]);
        }
    }

    private static void open() {
        if (!isOpen) {
            producer.beginTransaction();
            isOpen = true;
        }
    }

    /** As if the process had died: nothing is aborted. */
    private static void forget() {
        if (producer != null) {
            producer.close(Duration.ZERO);
            producer = null;
        }
        isOpen = false;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
